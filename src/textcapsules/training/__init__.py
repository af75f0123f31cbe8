"""Training, in order.

`resolve`, `data_warnings`, `memory`, `prepare`, `selection`, `checkpoint`, `start`,
`steps`, `loop`, `fit`, `lock`, `folder`, `wake`, `run`.
"""
