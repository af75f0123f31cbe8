"""Choose when a score is high enough, without one multi-label annotation.

Training texts carry one label, yet a new text may deserve several. Two single-label
development documents of different classes, joined, make a document with two known
labels. On such documents, and the single ones beside them, a threshold (and an epoch)
can be chosen honestly: the test set is never looked at. Scores of any model can be
calibrated this way.

One threshold serves all labels, or each has its own (`label_thresholds`): where a
logistic model of its scores, whose biases are drawn towards their mean, passes a cut
that all labels share.
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LabelThresholds",
    "best_threshold",
    "join_documents",
    "join_texts",
    "joined_pairs",
    "judge_decisions",
    "label_thresholds",
]

PAIRED_BY = ("texts", "labels")
MAX_CANDIDATES = 400
CLIP = 1e-4  # least distance of a score from 0 and 1 where its logit is taken
HALF_WAY = 20  # positive texts that bring a label's bias half way to its own
# Draws the slope towards 1, the scores as they are; far too weak to matter unless the
# labels are told apart without error, where no slope would be steep enough.
SLOPE_RIDGE = 1e-3
MAX_STEPS = 100  # of Newton's method, which needs about ten


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


def joined_pairs(
    targets: NDArray, n_pairs: int, seed: Any, *, by: str = "texts"
) -> NDArray:
    """Draw `n_pairs` pairs of rows (N, 2) that share no label.

    By texts, each row is the first of a pair in turn, and common labels are as common
    among the pairs. By labels, every label is as likely in a pair as any other: which
    labels real texts have together, single ones cannot tell. Rows whose labels all
    others share have no partner and are left out.
    """
    if by not in PAIRED_BY:
        raise ValueError(f"by must be {' or '.join(PAIRED_BY)}; got {by!r}.")
    rng = np.random.default_rng(seed)
    targets = targets.astype(bool)
    if by == "labels":
        return label_pairs(targets, n_pairs, rng)
    pairs, n_texts = [], len(targets)
    order: list[int] = []
    lonely: set[int] = set()
    apart: dict[bytes, NDArray] = {}  # rows that share none of a row's labels
    while len(pairs) < n_pairs and len(lonely) < n_texts:
        order = order or rng.permutation(n_texts).tolist()
        first = order.pop()
        labels = targets[first].tobytes()
        if labels not in apart:
            apart[labels] = np.flatnonzero(~(targets & targets[first]).any(1))
        partners = apart[labels]
        if not targets[first].any():  # a text without labels shares none with itself
            partners = partners[partners != first]
        if len(partners) == 0:
            lonely.add(first)
            continue
        pairs.append((first, int(rng.choice(partners))))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def label_pairs(targets: NDArray, n_pairs: int, rng: np.random.Generator) -> NDArray:
    """Draw a label, a row that has it, another label, and a row that has that one.

    The second row shares no label with the first.
    """
    rows = [np.flatnonzero(column) for column in targets.T]  # of each label
    pairs: list[tuple[int, int]] = []
    partners: dict[bytes, list[NDArray]] = {}  # of a first row's labels, by label
    usable = [label for label, found in enumerate(rows) if len(found)]
    while len(pairs) < n_pairs and usable:
        label = usable[rng.integers(len(usable))]
        first = int(rng.choice(rows[label]))
        labels = targets[first].tobytes()
        if labels not in partners:
            is_apart = ~(targets & targets[first]).any(1)  # (N,)
            apart = [found[is_apart[found]] for found in rows]
            partners[labels] = [found for found in apart if len(found)]
        if not partners[labels]:
            rows[label] = rows[label][rows[label] != first]
            usable = [label for label, found in enumerate(rows) if len(found)]
            continue
        others = partners[labels][rng.integers(len(partners[labels]))]
        pairs.append((first, int(rng.choice(others))))
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
    judge = objective_of(objective)
    levels = np.unique(scores)
    if len(levels) > MAX_CANDIDATES:
        levels = np.quantile(levels, np.linspace(0, 1, MAX_CANDIDATES))
    middles = (levels[1:] + levels[:-1]) / 2
    if len(middles) == 0:
        middles = np.array([0.5])
    truth = targets.astype(bool)
    values = np.array([judge(scores >= t, truth) for t in middles])
    best = np.flatnonzero(values == values.max())
    chosen = best[len(best) // 2]
    return float(middles[chosen]), float(values[chosen])


def objective_of(name: str) -> Callable[[NDArray, NDArray], float]:
    """Return what judges decisions, by its name."""
    if name not in OBJECTIVES:
        names = " or ".join(OBJECTIVES)
        raise ValueError(f"objective must be {names}; got {name!r}.")
    return OBJECTIVES[name]


def judge_decisions(
    scores: NDArray,
    targets: NDArray,
    thresholds: float | NDArray,
    objective: str = "exact-match",
) -> float:
    """Return the objective's value (N, J), with one threshold or one per label (J,)."""
    past = scores >= np.asarray(thresholds, dtype=scores.dtype)
    return objective_of(objective)(past, targets.astype(bool))


class LabelThresholds(NamedTuple):
    """A threshold per label, and what they are worth on the documents of the fit."""

    each: NDArray[np.float64]  # (J,)
    common: float  # of a label without a text
    value: float


def label_thresholds(
    scores: NDArray,
    targets: NDArray,
    objective: str = "exact-match",
    *,
    ridge: float | None = None,
) -> LabelThresholds:
    """Return a threshold per label, near a common one for labels with few texts.

    The probability of label j is modelled as p_j = σ(α z_j + β_j), z_j the logit of its
    score (clipped, so that lengths and probabilities are treated alike), with one slope
    α for all labels. Minimised is the log-loss, summed over texts and labels, plus
    λ Σ_j (β_j - mean β)². The threshold of label j is the score where α z + β_j equals
    a cut, the same for all labels, that makes the objective best (`best_threshold`). A
    label without a positive text has the mean of the biases.

    Where that is no better on these documents than one threshold, it is that one.

    Args:
        scores: (N, J), between 0 and 1.
        targets: (N, J).
        objective: "exact-match" or "micro-f1".
        ridge: λ; by default so large that a label with 20 positive texts lies about
            half way between the mean and what its own texts say, one with n about
            n / (n + 20) of the way.
    """
    one, reached = best_threshold(scores, targets, objective)
    n_labels = scores.shape[1]
    common = LabelThresholds(np.full(n_labels, one), one, reached)
    truth = targets.astype(bool)
    seen = truth.any(0)  # (J,)
    logits = logit(scores)  # (N, J)
    if not seen.any() or logits.min() == logits.max():
        return common
    if ridge is None:
        ridge = default_ridge(logits[:, seen], truth[:, seen])
    slope, own = fit_biases(logits[:, seen], truth[:, seen], ridge)
    if slope <= 0:  # a higher score speaks against its label: nothing to go by
        return common
    biases = np.full(n_labels, own.mean())
    biases[seen] = own
    # On the logits of p, which do not run together at 0 and 1 as p does.
    cut, _ = best_threshold(slope * logits + biases, targets, objective)
    each = sigmoid((cut - biases) / slope)
    value = judge_decisions(scores, targets, each, objective)
    if value <= reached:
        return common
    return LabelThresholds(each, float(sigmoid((cut - own.mean()) / slope)), value)


def default_ridge(logits: NDArray, truth: NDArray) -> float:
    """Return the λ that weighs as much as `HALF_WAY` positive texts of a label.

    What texts say of a bias is the sum of p (1 - p) over them, its information. Under
    one bias for all labels, n positive texts have about n times that of all texts and
    labels divided by all positives; 2 λ is the information of the penalty.
    """
    slope, bias = fit_biases(logits.reshape(-1, 1), truth.reshape(-1, 1), 0.0)
    p = sigmoid(slope * logits + bias)
    return float(HALF_WAY * (p * (1 - p)).sum() / truth.sum() / 2)


def fit_biases(
    logits: NDArray, truth: NDArray, ridge: float
) -> tuple[float, NDArray[np.float64]]:
    """Return the slope α and biases β (J,) of `label_thresholds`, by Newton's method.

    A step that would not lower the loss is halved until it does.
    """
    n_labels = logits.shape[1]
    spread = np.eye(n_labels) - 1 / n_labels  # β - mean β, as a product
    at: NDArray = np.concatenate([[1.0], np.zeros(n_labels)])  # α, then β

    def loss(at: NDArray) -> float:
        u = at[0] * logits + at[1:]  # (N, J)
        misfit = (np.logaddexp(0, u) - truth * u).sum()
        biases = ridge * np.square(spread @ at[1:]).sum()
        return float(misfit + biases + SLOPE_RIDGE * (at[0] - 1) ** 2)

    now = loss(at)
    for _ in range(MAX_STEPS):
        p = sigmoid(at[0] * logits + at[1:])
        error, weight = p - truth, p * (1 - p)  # (N, J)
        slope_gradient = (error * logits).sum() + 2 * SLOPE_RIDGE * (at[0] - 1)
        bias_gradient = error.sum(0) + 2 * ridge * spread @ at[1:]
        gradient = np.concatenate([[slope_gradient], bias_gradient])
        curvature = np.empty((n_labels + 1, n_labels + 1))
        curvature[0, 0] = (weight * logits**2).sum() + 2 * SLOPE_RIDGE
        curvature[0, 1:] = curvature[1:, 0] = (weight * logits).sum(0)
        curvature[1:, 1:] = np.diag(weight.sum(0)) + 2 * ridge * spread
        step = np.linalg.lstsq(curvature, gradient)[0]
        share = 1.0
        while share > 1e-6 and loss(at - share * step) > now:
            share /= 2
        moved = at - share * step
        before, now = now, loss(moved)
        if now >= before:
            break
        at = moved
        if before - now < 1e-12 * (1 + before):
            break
    return float(at[0]), at[1:]


def logit(scores: NDArray) -> NDArray[np.float64]:
    """Return log(s / (1 - s)) of scores kept `CLIP` away from 0 and 1."""
    kept = np.clip(np.asarray(scores, dtype=np.float64), CLIP, 1 - CLIP)
    return np.log(kept) - np.log1p(-kept)


def sigmoid(values: Any) -> Any:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * values))
