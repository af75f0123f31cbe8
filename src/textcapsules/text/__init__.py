"""From text to tensor: tokens, vocabulary, word vectors, trees, batches.

In order: `tokenize`, `spelling`, `vocabulary`, `pieces`, `encoder`, `vectors`,
`lexicon`, `trees`, `encode`, `batch`.
"""
