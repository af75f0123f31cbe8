"""Training, in order.

`resolve`, `prepare`, `selection`, `checkpoint`, `steps`, `loop`, `fit`, `folder`,
`run`.
"""
