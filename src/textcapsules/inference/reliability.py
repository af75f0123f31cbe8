"""Can a score be taken for a probability? Of what scored about s, which share is right?

Every pair of a text and a label has a score and is right or wrong. The pairs are put
into bins of equal width by their score. In each bin the share of right pairs is set
against the mean score; a model whose scores are probabilities lies on the diagonal.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bin", "Reliability", "reliability"]


class Bin(NamedTuple):
    """The pairs of a text and a label whose score lies in one interval."""

    low: float
    high: float
    pairs: int
    score: float  # mean
    share: float  # of the pairs whose text has the label


class Reliability(NamedTuple):
    """The bins that hold a pair, from low scores to high, and their mean distance."""

    bins: tuple[Bin, ...]
    error: float  # |share - score|, mean over pairs: expected calibration error

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"bins": [each._asdict() for each in self.bins], "error": self.error}


def reliability(scores: NDArray, targets: NDArray, n_bins: int = 10) -> Reliability:
    """Return the calibration curve of scores (N, J) against targets (N, J)."""
    flat = np.asarray(scores, dtype=np.float64).ravel()
    right = np.asarray(targets).astype(bool).ravel()
    places = np.clip((flat * n_bins).astype(int), 0, n_bins - 1)
    pairs = np.bincount(places, minlength=n_bins)
    n_pairs = np.maximum(pairs, 1)
    means = np.bincount(places, flat, minlength=n_bins) / n_pairs
    shares = np.bincount(places, right, minlength=n_bins) / n_pairs
    bins = tuple(
        Bin(
            place / n_bins,
            (place + 1) / n_bins,
            int(pairs[place]),
            float(means[place]),
            float(shares[place]),
        )
        for place in np.flatnonzero(pairs)
    )
    error = float((np.abs(shares - means) * pairs).sum() / max(len(flat), 1))
    return Reliability(bins, error)
