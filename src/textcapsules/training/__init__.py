"""Training, in order.

`resolve`, `data_warnings`, `memory`, `prepare`, `selection`, `average`, `checkpoint`,
`last_epoch`, `start`, `schedule`, `steps`, `loop`, `fit`, `lock`, `folder`, `wake`,
`run`.
"""
