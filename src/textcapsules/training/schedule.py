"""The learning rate of every step: a warm-up, a fall to zero, a factor per epoch.

Every epoch has as many steps as any other (as many texts are joined in each), so step k
of all n is known from the epoch and the step in it.
"""

import math

from textcapsules.config import TrainConfig
from textcapsules.errors import TextCapsulesError

__all__ = ["changes_by_step", "rate_at"]


def changes_by_step(train: TrainConfig) -> bool:
    """Tell whether the rate depends on the step, and so on how many there will be."""
    return train.schedule != "constant" or train.warmup > 0


def rate_at(train: TrainConfig, epoch: int, step: int, n_steps: int) -> float:
    """Return the learning rate of a step, one of `n_steps` in its epoch.

    >>> train = TrainConfig(
    ...     learning_rate=1.0, epochs=2, schedule="linear", warmup=0.5
    ... )
    >>> [rate_at(train, epoch, step, 2) for epoch in (0, 1) for step in (0, 1)]
    [0.5, 0.75, 0.5, 0.25]
    """
    try:
        rate = train.learning_rate * train.rate_decay**epoch
    except OverflowError:
        rate = math.inf
    if not math.isfinite(rate):
        raise TextCapsulesError(
            f"the learning rate must stay finite; got {rate} in epoch {epoch + 1}. "
            "Lower --learning-rate or --rate-decay."
        )
    if not changes_by_step(train):
        return rate
    assert train.epochs is not None  # `resolve` has settled it
    k, n = epoch * n_steps + step, train.epochs * n_steps
    if k + 1 < train.warmup * n:
        rate *= (k + 1) / (train.warmup * n)
    if train.schedule == "linear":
        rate *= (n - k) / n
    elif train.schedule == "cosine":
        rate *= (1 + math.cos(math.pi * k / n)) / 2
    return rate
