"""Choose the thresholds: how high a score must be for its label to be given.

Every rule that turns scores and known labels into thresholds is here and nowhere else:
`THRESHOLD_RULES` lists the rules by the names that the option `--thresholds` has, and
`OBJECTIVES` what a rule may make best. A rule sees any model's scores; on which
documents it sees them is `selection`'s concern. A label is given if its score is at
least its threshold.
"""

from collections.abc import Callable, Sequence
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
    "reviewed_thresholds",
]

UNCALIBRATED = 0.5  # the threshold where there is nothing to choose it on
MAX_CANDIDATES = 400
CLIP = 1e-4  # minimum distance of a score from 0 and 1 before its logit is taken
HALF_WAY = 20  # positive texts that bring a label's bias half way to its own
# Draws the slope towards 1, which leaves the scores as they are. It matters only if the
# scores separate the labels without error: any slope could then be steeper.
SLOPE_RIDGE = 1e-3
HELD_SLOPE = 1e6  # a pull that leaves the slope at 1
# How strongly reviewed texts must speak to move thresholds: λ and μ of
# `reviewed_thresholds`, chosen on joined dev texts (docs/review.md).
PULL, LABEL_PULL = 0.2, 1.0
# How much a reviewed text with several labels weighs: such texts are few, and else the
# thresholds that suit the others take their labels away. Chosen on joined dev texts.
SEVERAL_WEIGHT = 2.0
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


def reviewed_thresholds(
    scores: NDArray,
    targets: NDArray,
    present: Sequence[float] | NDArray,
    *,
    pull: float = PULL,
    label_pull: float = LABEL_PULL,
) -> NDArray[np.float64]:
    """Return thresholds (J,) from a few texts whose labels are all known.

    The present thresholds are the prior: what they were chosen on, such as joined
    texts, is seldom like the texts that a user has, and yet a few reviewed texts cannot
    say everything. With z the logit of a score and τ_j that of the present threshold,
    the probability of label j is modelled as p_j = σ(α (z_j - τ_j) + b + d_j). The fit
    minimises the log-loss, summed over texts and labels, plus λ b² + μ Σ_j d_j²: the
    common shift b is pulled towards 0 and the labels' own shifts d_j towards the common
    one. A text with several labels counts `SEVERAL_WEIGHT` times. A label is given
    where p_j is at least one half, at z = τ_j - (b + d_j) / α.

    A text may have no label. If a higher score makes its label less likely, the texts
    are no guide, and the present thresholds are returned.

    Args:
        scores: (N, J), between 0 and 1.
        targets: (N, J), all labels of each text.
        present: (J,), the thresholds to start from.
        pull: λ.
        label_pull: μ.
    """
    before = np.asarray(present, dtype=np.float64)
    if not len(scores):
        return before
    x = logit(scores) - logit(before)  # (N, J)
    truth = np.asarray(targets).astype(bool)
    # Where all labels are given, or none is, nothing tells how steep the rise is.
    slope_pull = SLOPE_RIDGE if truth.any() and not truth.all() else HELD_SLOPE
    weights = np.where(truth.sum(1, keepdims=True) > 1, SEVERAL_WEIGHT, 1.0)  # (N, 1)
    slope, shifts = fit_shifts(x, truth, weights, pull, label_pull, slope_pull)
    if slope <= 0:
        return before
    return sigmoid(logit(before) - shifts / slope)


def fit_shifts(
    x: NDArray,
    truth: NDArray,
    weights: NDArray,
    pull: float,
    label_pull: float,
    slope_pull: float = SLOPE_RIDGE,
) -> tuple[float, NDArray[np.float64]]:
    """Return α and b + d (J,) of `reviewed_thresholds`, by Newton's method.

    The curvature is diagonal but for the rows of α and b, so a step takes time in
    proportion to the number of scores, however many labels there are.
    """
    at = np.zeros(2 + x.shape[1])  # α, b, then d
    at[0] = 1.0

    def loss(at: NDArray) -> float:
        u = at[0] * x + at[1] + at[2:]  # (N, J)
        misfit = (weights * (np.logaddexp(0, u) - truth * u)).sum()
        penalty = pull * at[1] ** 2 + label_pull * np.square(at[2:]).sum()
        return float(misfit + penalty + slope_pull * (at[0] - 1) ** 2)

    def step(at: NDArray) -> NDArray:
        p = sigmoid(at[0] * x + at[1] + at[2:])
        error, weight = weights * (p - truth), weights * p * (1 - p)  # (N, J)
        own_gradient = error.sum(0) + 2 * label_pull * at[2:]
        slope_gradient = (error * x).sum() + 2 * slope_pull * (at[0] - 1)
        gradient = np.array([slope_gradient, error.sum() + 2 * pull * at[1]])
        border = np.stack([(weight * x).sum(0), weight.sum(0)])  # (2, J)
        diagonal = border[1] + 2 * label_pull  # (J,)
        corner = np.diag(
            [(weight * x**2).sum() + 2 * slope_pull, weight.sum() + 2 * pull]
        )
        corner[0, 1] = corner[1, 0] = border[0].sum()
        # Solved for α and b first, with d left out of the equations.
        scaled = border / diagonal
        left, right = corner - scaled @ border.T, gradient - scaled @ own_gradient
        pair = np.linalg.lstsq(left, right)[0]
        return np.concatenate([pair, (own_gradient - pair @ border) / diagonal])

    at = descend(loss, step, at)
    return float(at[0]), at[1] + at[2:]


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
    """Return slope α and biases β (J,) of `label_thresholds`, by Newton's method."""
    n_labels = logits.shape[1]
    spread = np.eye(n_labels) - 1 / n_labels  # β - mean β, as a product
    at: NDArray = np.concatenate([[1.0], np.zeros(n_labels)])  # α, then β

    def loss(at: NDArray) -> float:
        u = at[0] * logits + at[1:]  # (N, J)
        misfit = (np.logaddexp(0, u) - truth * u).sum()
        biases = ridge * np.square(spread @ at[1:]).sum()
        return float(misfit + biases + SLOPE_RIDGE * (at[0] - 1) ** 2)

    def step(at: NDArray) -> NDArray:
        p = sigmoid(at[0] * logits + at[1:])
        error, weight = p - truth, p * (1 - p)  # (N, J)
        slope_gradient = (error * logits).sum() + 2 * SLOPE_RIDGE * (at[0] - 1)
        bias_gradient = error.sum(0) + 2 * ridge * spread @ at[1:]
        gradient = np.concatenate([[slope_gradient], bias_gradient])
        curvature = np.empty((n_labels + 1, n_labels + 1))
        curvature[0, 0] = (weight * logits**2).sum() + 2 * SLOPE_RIDGE
        curvature[0, 1:] = curvature[1:, 0] = (weight * logits).sum(0)
        curvature[1:, 1:] = np.diag(weight.sum(0)) + 2 * ridge * spread
        return np.linalg.lstsq(curvature, gradient)[0]

    at = descend(loss, step, at)
    return float(at[0]), at[1:]


def descend(
    loss: Callable[[NDArray], float], step_at: Callable[[NDArray], NDArray], at: NDArray
) -> NDArray:
    """Return where Newton's steps end; one that does not lower the loss is halved."""
    now = loss(at)
    for _ in range(MAX_STEPS):
        step, share = step_at(at), 1.0
        while share > 1e-6 and loss(at - share * step) > now:
            share /= 2
        moved = at - share * step
        before, now = now, loss(moved)
        if now >= before:
            break
        at = moved
        if before - now < 1e-12 * (1 + before):
            break
    return at


def logit(scores: NDArray) -> NDArray[np.float64]:
    """Return log(s / (1 - s)) of scores kept `CLIP` away from 0 and 1."""
    kept = np.clip(np.asarray(scores, dtype=np.float64), CLIP, 1 - CLIP)
    return np.log(kept) - np.log1p(-kept)


def sigmoid(values: Any) -> Any:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * values))
