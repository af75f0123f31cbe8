"""From text to tensor, in order.

`tokenize`, `vocabulary`, `pieces`, `encoder`, `vectors`, `lexicon`, `trees`, `encode`,
`batch`.
"""
