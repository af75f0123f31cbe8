"""Training, in order.

`resolve`, `data_warnings`, `memory`, `prepare`, `selection`, `checkpoint`,
`last_epoch`, `start`, `steps`, `loop`, `fit`, `lock`, `folder`, `wake`, `run`.
"""
