"""Pairs of labels: which come together, and which are taken for each other."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["MixUp", "co_occurrence", "mix_ups"]


class MixUp(NamedTuple):
    """A label that was missed where another was wrongly predicted, and how often."""

    missed: str
    instead: str
    texts: int


def mix_ups(
    chosen: NDArray, targets: NDArray, labels: Sequence[str]
) -> tuple[MixUp, ...]:
    """Count which label was predicted where another was missed, most frequent first."""
    true = targets.astype(bool)
    missed, extra = true & ~chosen, chosen & ~true  # (N, J)
    counts = missed.T.astype(int) @ extra.astype(int)  # (J, J)
    pairs = [
        MixUp(labels[row], labels[column], int(counts[row, column]))
        for row, column in np.argwhere(counts).tolist()
    ]
    return tuple(sorted(pairs, key=lambda pair: -pair.texts))


def co_occurrence(given: NDArray) -> NDArray:
    """Return how many texts have each two labels (J, J), and each one (the diagonal).

    >>> co_occurrence(np.array([[1, 1, 0], [1, 0, 0]]))
    array([[2, 1, 0],
           [1, 1, 0],
           [0, 0, 0]])
    """
    has = given.astype(bool).astype(int)  # (N, J)
    return has.T @ has
