"""Choose when a score is high enough, without one multi-label annotation.

Training texts carry one label, yet a new text may deserve several. Two single-label
development documents of different classes, joined, make a document with two known
labels. On such documents a threshold (and an epoch) can be chosen honestly: the test
set is never looked at. Scores of any model can be calibrated this way.
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_threshold", "join_documents", "join_texts", "joined_pairs"]

MAX_CANDIDATES = 400


def exact_match(predicted: NDArray, targets: NDArray) -> float:
    """Return the share of texts whose labels are all right, (N, J) booleans."""
    return float((predicted == targets).all(1).mean())


def micro_f1(predicted: NDArray, targets: NDArray) -> float:
    """Return F1 over all decisions, (N, J) booleans."""
    hits = (predicted & targets).sum()
    return float(2 * hits / max(predicted.sum() + targets.sum(), 1))


# Computed directly, not by `metrics`: a search calls one hundreds of times an epoch.
OBJECTIVES: dict[str, Callable[[NDArray, NDArray], float]] = {
    "exact-match": exact_match,
    "micro-f1": micro_f1,
}


def joined_pairs(targets: NDArray, n_pairs: int, seed: Any) -> NDArray:
    """Draw `n_pairs` pairs of rows (N, 2) that share no label, each row in turn.

    Rows whose labels all others share have no partner and are left out.
    """
    rng = np.random.default_rng(seed)
    targets = targets.astype(bool)
    pairs, n_texts = [], len(targets)
    order: list[int] = []
    lonely: set[int] = set()
    while len(pairs) < n_pairs and len(lonely) < n_texts:
        order = order or rng.permutation(n_texts).tolist()
        first = order.pop()
        is_apart = ~(targets & targets[first]).any(1)  # (N,)
        is_apart[first] = False  # a text without labels shares none with itself
        partners = np.flatnonzero(is_apart)
        if len(partners) == 0:
            lonely.add(first)
            continue
        pairs.append((first, int(rng.choice(partners))))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def join_documents(
    documents: Sequence[NDArray],
    targets: NDArray,
    pairs: NDArray,
    max_tokens: int,
    *,
    share: float = 1.0,
    seed: Any = 0,
) -> tuple[list[NDArray], NDArray]:
    """Join token numbers pair by pair; each half is cut so that both are read.

    Args:
        documents: single ones.
        targets: (N, J), their labels.
        pairs: (P, 2), which of them to join.
        max_tokens: of a joined document.
        share: below one, a stretch of one of the two is taken (`cut_one`): few texts
            speak of two things at equal length.
        seed: of what is cut.
    """
    half, random = max(max_tokens // 2, 1), np.random.default_rng(seed)
    joined = []
    for pair in pairs:
        parts = [documents[row][:half] for row in pair]
        joined.append(np.concatenate(cut_one(parts, share, random)))
    return joined, np.maximum(targets[pairs[:, 0]], targets[pairs[:, 1]])


def join_texts(
    texts: Sequence[str], pairs: NDArray, *, share: float = 1.0, seed: Any = 0
) -> list[str]:
    """Join texts pair by pair, for models that read text; `share` as for documents."""
    if share == 1:
        return [f"{texts[first]} {texts[second]}" for first, second in pairs]
    random, words = np.random.default_rng(seed), [text.split() for text in texts]
    return [
        " ".join(chain(*cut_one([words[row] for row in pair], share, random)))
        for pair in pairs
    ]


def cut_one(parts: list[Any], share: float, random: np.random.Generator) -> list[Any]:
    """Cut one of two sequences, drawn, to a stretch of at least `share` of it."""
    if share == 1:
        return parts
    which = int(random.integers(2))
    n_all = len(parts[which])
    n_kept = math.ceil(random.uniform(share, 1) * n_all)
    start = int(random.integers(n_all - n_kept + 1))
    parts[which] = parts[which][start : start + n_kept]
    return parts


def best_threshold(
    scores: NDArray, targets: NDArray, objective: str = "exact-match"
) -> tuple[float, float]:
    """Return the threshold that makes the objective best, and that best value.

    A class is predicted where its score is at least the threshold. Candidates lie
    midway between neighbouring scores, so none accepts or refuses everything; of equal
    ones the middle is taken, which is the least sensitive to new texts. Where all
    scores are the same there is no candidate, and the threshold is a half.
    """
    if objective not in OBJECTIVES:
        names = " or ".join(OBJECTIVES)
        raise ValueError(f"objective must be {names}; got {objective!r}.")
    levels = np.unique(scores)
    if len(levels) > MAX_CANDIDATES:
        levels = np.quantile(levels, np.linspace(0, 1, MAX_CANDIDATES))
    middles = (levels[1:] + levels[:-1]) / 2
    if len(middles) == 0:
        middles = np.array([0.5])
    judge, truth = OBJECTIVES[objective], targets.astype(bool)
    values = np.array([judge(scores >= t, truth) for t in middles])
    best = np.flatnonzero(values == values.max())
    chosen = best[len(best) // 2]
    return float(middles[chosen]), float(values[chosen])
