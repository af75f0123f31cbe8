"""The network, in order.

`functional`, `routing`, `primary_gpu`, `layers`, `embedding`, `capsnet`, `baselines`,
`rivals`, `builder`, `score`.
"""
