"""Training, in order.

`resolve`, `prepare`, `selection`, `checkpoint`, `start`, `steps`, `loop`, `fit`,
`folder`, `wake`, `run`.
"""
