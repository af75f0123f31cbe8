"""Training: `prepare`, `selection`, `checkpoint`, `loop`, `run`."""
