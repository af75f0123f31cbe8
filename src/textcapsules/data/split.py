"""Hold-outs and folds that are the same on every machine.

Examples are shuffled by the raw 64-bit words of PCG64, the one stream that numpy
promises never to change, and then sorted by class. Every k-th of that order is taken:
each class has its share to within one example, and the total is exact.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from textcapsules.base.errors import ConfigError

__all__ = ["N_FOLDS", "folds", "hold_out"]

N_FOLDS = 10


def hold_out(
    labels: int | Sequence[Hashable], fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices kept and the indices held out, both ascending.

    Args:
        labels: The class of each example, or only the number of examples.
        fraction: The share held out, rounded to whole examples, at least one.
        seed: Another seed holds out other examples.

    >>> kept, held = hold_out(["a"] * 10 + ["b"] * 10, 0.1, seed=0)
    >>> len(kept), len(held), held[0] < 10 <= held[1]
    (18, 2, np.True_)
    """
    if not 0 < fraction < 1:
        raise ConfigError(f"fraction must be between 0 and 1; got {fraction}.")
    order = _order(labels, seed)
    if len(order) < 2:
        raise ConfigError(
            f"examples must be at least 2 to hold some out; got {len(order)}."
        )
    n_held = min(max(int(len(order) * fraction + 0.5), 1), len(order) - 1)
    # The middle of each of n_held equal stretches, in whole numbers.
    places = (2 * np.arange(n_held) + 1) * len(order) // (2 * n_held)
    is_held = np.zeros(len(order), dtype=bool)
    is_held[order[places]] = True
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def folds(
    labels: int | Sequence[Hashable], seed: int, n_folds: int = N_FOLDS
) -> np.ndarray:
    """Return the fold, from 0 to `n_folds` - 1, of every example.

    >>> np.bincount(folds(25, seed=0, n_folds=10)).tolist()
    [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]
    """
    order = _order(labels, seed)
    if not 2 <= n_folds <= len(order):
        raise ConfigError(
            f"n_folds must be from 2 to the number of examples, {len(order)}; "
            f"got {n_folds}."
        )
    fold = np.empty(len(order), dtype=np.int64)
    fold[order] = np.arange(len(order)) % n_folds
    return fold


def _order(labels: int | Sequence[Hashable], seed: int) -> np.ndarray:
    """Shuffle the examples, then sort them by class, classes as they first occur."""
    if seed < 0:
        raise ConfigError(f"seed must be at least 0; got {seed}.")
    n_examples = labels if isinstance(labels, int) else len(labels)
    draws = np.random.PCG64(seed).random_raw(n_examples)
    if isinstance(labels, int):
        return np.argsort(draws, kind="stable")
    code: dict[Hashable, int] = {}
    classes = np.array([code.setdefault(label, len(code)) for label in labels], int)
    return np.lexsort((draws, classes))
