"""The network, in order.

`functional`, `routing` (the definition), `kernels` (the same, compiled), `layers`,
`network`, `capsnet`, `baselines`, `builder`, `score`, `classifier`.
"""
