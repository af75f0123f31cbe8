"""Training: `prepare`, `selection`, `checkpoint`, `loop`, `folder`, `run`."""
