"""Choose the thresholds: how high a score must be for its label to be given.

Every rule that turns scores and known labels into thresholds is here and nowhere else:
`THRESHOLD_RULES` lists the rules by the names that the option `--thresholds` has, and
`OBJECTIVES` what a rule may make best. A rule sees any model's scores; on which
documents it sees them is `selection`'s concern. A label is given if its score is at
least its threshold.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "THRESHOLD_RULES",
    "UNCALIBRATED",
    "Thresholds",
    "best_threshold",
    "common_threshold",
    "judge_decisions",
    "label_thresholds",
]

UNCALIBRATED = 0.5  # the threshold where there is nothing to choose it on
MAX_CANDIDATES = 400
CLIP = 1e-4  # minimum distance of a score from 0 and 1 before its logit is taken
HALF_WAY = 20  # positive texts that bring a label's bias half way to its own
# Draws the slope towards 1, which leaves the scores as they are. It matters only if the
# scores separate the labels without error: any slope could then be steeper.
SLOPE_RIDGE = 1e-3
MAX_STEPS = 100  # of Newton's method, which needs about ten


def exact_match(predicted: NDArray, targets: NDArray) -> float:
    """Return the share of texts whose labels are all right, (N, J) booleans."""
    return float((predicted == targets).all(1).mean())


def micro_f1(predicted: NDArray, targets: NDArray) -> float:
    """Return F1 over all decisions, (N, J) booleans."""
    hits = (predicted & targets).sum()
    return float(2 * hits / max(predicted.sum() + targets.sum(), 1))


# Faster than those of `metrics`: a search calls one hundreds of times per epoch.
OBJECTIVES: dict[str, Callable[[NDArray, NDArray], float]] = {
    "exact-match": exact_match,
    "micro-f1": micro_f1,
}


def best_threshold(
    scores: NDArray, targets: NDArray, objective: str = "exact-match"
) -> tuple[float, float]:
    """Return the threshold that makes the objective best, and that best value.

    Candidates lie midway between neighbouring scores, so none accepts or refuses
    everything. Of several that are equally good the middle one is taken, which is the
    least sensitive to new texts. If all scores are the same there is no candidate, and
    the threshold is `UNCALIBRATED`.
    """
    judge = objective_of(objective)
    levels = np.unique(scores)
    if len(levels) > MAX_CANDIDATES:
        levels = np.quantile(levels, np.linspace(0, 1, MAX_CANDIDATES))
    middles = (levels[1:] + levels[:-1]) / 2
    if len(middles) == 0:
        middles = np.array([UNCALIBRATED])
    truth = targets.astype(bool)
    values = np.array([judge(scores >= t, truth) for t in middles])
    best = np.flatnonzero(values == values.max())
    chosen = best[len(best) // 2]
    return float(middles[chosen]), float(values[chosen])


def objective_of(name: str) -> Callable[[NDArray, NDArray], float]:
    """Return the function that judges decisions, by its name."""
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
    """Return the objective's value with one threshold, or with one per label (J,)."""
    predicted = scores >= np.asarray(thresholds, dtype=scores.dtype)  # (N, J)
    return objective_of(objective)(predicted, targets.astype(bool))


class Thresholds(NamedTuple):
    """A threshold per label, and the objective that they reach."""

    each: NDArray[np.float64]  # (J,)
    common: float  # the threshold of a label without a text
    value: float


def common_threshold(
    scores: NDArray, targets: NDArray, objective: str = "exact-match"
) -> Thresholds:
    """Return the best threshold that is the same for all labels."""
    threshold, value = best_threshold(scores, targets, objective)
    return Thresholds(np.full(scores.shape[1], threshold), threshold, value)


def label_thresholds(
    scores: NDArray,
    targets: NDArray,
    objective: str = "exact-match",
    *,
    ridge: float | None = None,
) -> Thresholds:
    """Return a threshold per label, near a common one for labels with few texts.

    The probability of label j is modelled as p_j = σ(α z_j + β_j). z_j is the logit of
    its score (clipped, so that lengths and probabilities are treated alike), and the
    slope α is the same for all labels. The fit minimises the log-loss, summed over
    texts and labels, plus λ Σ_j (β_j - mean β)². The threshold of label j is the score
    where α z + β_j equals a cut; the cut is the same for all labels and makes the
    objective best (`best_threshold`). A label without a positive text has the mean of
    the biases.

    If that is no better on these documents than one common threshold, all labels have
    the common one.

    Args:
        scores: (N, J), between 0 and 1.
        targets: (N, J).
        objective: "exact-match" or "micro-f1".
        ridge: λ. By default, a label with n positive texts goes about n / (n + 20) of
            the way from the mean to what its own texts say.
    """
    common = common_threshold(scores, targets, objective)
    truth = targets.astype(bool)
    seen = truth.any(0)  # (J,)
    logits = logit(scores)  # (N, J)
    if not seen.any() or logits.min() == logits.max():
        return common
    if ridge is None:
        ridge = default_ridge(logits[:, seen], truth[:, seen])
    slope, seen_biases = fit_biases(logits[:, seen], truth[:, seen], ridge)
    if slope <= 0:  # a higher score makes its label less likely: the fit is no guide
        return common
    biases = np.full(scores.shape[1], seen_biases.mean())
    biases[seen] = seen_biases
    # On the logits of p, which do not run together at 0 and 1 as p does.
    cut, _ = best_threshold(slope * logits + biases, targets, objective)
    each = sigmoid((cut - biases) / slope)
    value = judge_decisions(scores, targets, each, objective)
    if value <= common.value:
        return common
    unseen = float(sigmoid((cut - seen_biases.mean()) / slope))
    return Thresholds(each, unseen, value)


# By the names of the option `--thresholds`: from scores (N, J), targets (N, J) and the
# objective's name to thresholds.
THRESHOLD_RULES: dict[str, Callable[[NDArray, NDArray, str], Thresholds]] = {
    "one": common_threshold,
    "per-label": label_thresholds,
}


def default_ridge(logits: NDArray, truth: NDArray) -> float:
    """Return the λ that weighs as much as `HALF_WAY` positive texts of a label.

    The information that texts have about a bias is the sum of p (1 - p) over them. With
    one bias for all labels, n positive texts have about n times the sum over all texts
    and labels, divided by the number of positives. The penalty's information is 2 λ.
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
