"""From text to tensor, in order.

`tokenize`, `vocabulary`, `vectors`, `lexicon`, `trees`, `encode`, `batch`.
"""
