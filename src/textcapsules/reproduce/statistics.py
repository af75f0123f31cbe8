"""Means with their spread, and whether two systems differ by more than chance."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mean", "mcnemar", "mean", "paired_t", "unpack"]


class Mean(NamedTuple):
    """The mean of some runs."""

    value: float
    spread: float  # sample standard deviation, NaN for a single run
    runs: int


def mean(values: Sequence[float]) -> Mean | None:
    """Return the mean of values, None if there are none.

    >>> mean([1.0, 3.0])
    Mean(value=2.0, spread=1.4142135623730951, runs=2)
    """
    if not values:
        return None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return Mean(float(np.mean(values)), spread, len(values))


def paired_t(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the p-value of a paired t-test, NaN for fewer than two pairs.

    Where all differences are the same there is no spread to judge by: 1 if they are
    zero, else NaN.
    """
    from scipy.stats import ttest_rel

    gaps = np.subtract(ours, theirs)
    if len(gaps) < 2:
        return math.nan
    if np.ptp(gaps) == 0:
        return 1.0 if gaps[0] == 0 else math.nan
    return float(ttest_rel(ours, theirs).pvalue)  # type: ignore[attr-defined]


def mcnemar(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> float:
    """Return the exact p-value of McNemar's test on which texts were right.

    Only texts that one system has right and the other wrong tell anything; if there
    are none, the p-value is 1.

    >>> mcnemar(np.array([True] * 6 + [False]), np.zeros(7, dtype=bool))
    0.03125
    """
    from scipy.stats import binomtest

    wins, losses = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    if wins + losses == 0:
        return 1.0
    return float(binomtest(wins, wins + losses, 0.5).pvalue)


def unpack(right: str, texts: int) -> NDArray[np.bool_]:
    """Return which texts were right from a record's hexadecimal bits.

    >>> unpack("88", 5).tolist()
    [True, False, False, False, True]
    """
    packed = np.frombuffer(bytes.fromhex(right), dtype=np.uint8)
    return np.unpackbits(packed, count=texts).astype(bool)
