"""From tensor to scores: routing, its kernels, layers, networks, a trained model.

In order: `functional`, `routing` (the definition), `kernels` (the same, compiled),
`layers`, `word_scores`, `network`, `capsnet`, `baselines`, `builder`, `captured`,
`score`, `classifier`.
"""
