"""The network, in order.

`functional`, `routing`, `layers`, `capsnet`, `baselines`, `builder`, `score`.
"""
