"""The network, in order.

`functional`, `routing`, `primary_gpu`, `layers`, `capsnet`, `baselines`, `rivals`,
`builder`, `score`.
"""
