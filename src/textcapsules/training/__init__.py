"""Training: `prepare`, `selection`, `checkpoint`, `steps`, `loop`, `folder`, `run`."""
