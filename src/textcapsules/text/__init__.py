"""From text to tensor: tokens, vocabulary, word vectors, trees, batches.

In order: `tokenize`, `function_words`, `spelling`, `vocabulary`, `pieces`,
`piece_vectors`, `state_store`, `bert`, `encoder_files`, `encoder`, `encoder_training`,
`vectors`, `lexicon`, `trees`, `encode`, `outside`, `batch`.
"""
