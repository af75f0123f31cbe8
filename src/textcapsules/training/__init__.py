"""Training, in order.

`losses`, `metrics`, `calibrate`, `resolve`, `machine`, `prepare`, `selection`,
`optimise`, `checkpoint`, `start`, `steps`, `loop`, `folder`, `run`.
"""
