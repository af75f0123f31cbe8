"""A running average of the weights, which is judged and kept in their place.

The weights of single steps scatter around where they are heading; their average is
nearer to it. Only what is learnt is averaged: running statistics are the network's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["AveragedWeights"]


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
