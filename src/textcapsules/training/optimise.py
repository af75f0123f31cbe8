"""A running average of the weights, which is judged and kept in their place.

The weights of single steps scatter around where they are heading; their average is
nearer to it. Only what is learnt is averaged: running statistics are the network's own.

The learning rate of every step: a warm-up, a fall to zero, a factor per epoch.

Every epoch has as many steps as any other (as many texts are joined in each), so step k
of all n is known from the epoch and the step in it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from textcapsules.base.errors import TextCapsulesError
from textcapsules.config import TrainConfig

__all__ = ["AveragedWeights", "changes_by_step", "rate_at"]


class AveragedWeights:
    """The average after every step so far: mean <- d mean + (1 - d) weights."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        learnt = {n: p for n, p in network.named_parameters() if p.requires_grad}
        # Captured steps write to the weights where they are, so these stay theirs.
        self.weights: list[Tensor] = [p.detach() for p in learnt.values()]
        self.mean: dict[str, Tensor] = {
            n: p.detach().clone() for n, p in learnt.items()
        }

    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 0 over all epochs.

        The past weighs less at first, when it is mostly how the weights were drawn.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        # One kernel for all of them, after the captured step.
        torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
            list(self.mean.values()), self.weights, 1 - decay
        )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the network have the average for as long as the block runs."""
        raw = [weight.clone() for weight in self.weights]
        for weight, mean in zip(self.weights, self.mean.values(), strict=True):
            weight.copy_(mean)
        try:
            yield
        finally:
            for weight, before in zip(self.weights, raw, strict=True):
                weight.copy_(before)


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
