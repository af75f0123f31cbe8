"""From text to tensor: tokens, vocabulary, word vectors, trees, batches.

In order: `tokenize`, `spelling`, `function_words`, `vocabulary`, `pieces`,
`state_store`, `encoder`, `vectors`, `lexicon`, `trees`, `encode`, `outside`, `batch`.
"""
