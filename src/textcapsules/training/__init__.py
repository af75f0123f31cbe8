"""Training, in order.

`resolve`, `prepare`, `selection`, `checkpoint`, `start`, `steps`, `unseen`, `loop`,
`fit`, `folder`, `wake`, `run`.
"""
