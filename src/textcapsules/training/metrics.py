"""Accuracy for one label per text; exact match and named averages for several.

Precision, recall and F1 come in three averages: `micro` (over all decisions), `macro`
(over classes) and `samples` (over texts, what the authors' released code prints). An
average over nothing counts as zero.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.model.score import highest

__all__ = ["confusion", "log_loss", "multi_label", "per_class", "single_label"]

AVERAGES = ("micro", "macro", "samples")


def single_label(scores: NDArray, targets: NDArray) -> dict[str, float]:
    """Return the accuracy and macro F1 of the highest score, (N, J) against (N, J).

    A text whose scores are all zero has no prediction, so it is never right.
    """
    guess = highest(scores)[:, None] == np.arange(scores.shape[1])  # (N, J)
    _, _, f1, _ = _precision_recall_f1(targets.astype(bool), guess, "macro")
    hits = (guess & targets.astype(bool)).any(1)
    return {"accuracy": float(hits.mean()), "macro_f1": float(f1)}


def log_loss(scores: NDArray, targets: NDArray, *, several: bool) -> float:
    """Return the mean cross-entropy per text; if `several`, each class is binary."""
    p = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    loss = -targets * np.log(p)
    if several:
        loss -= (1 - targets) * np.log(1 - p)
    return float(loss.sum(1).mean())


def multi_label(predicted: NDArray, targets: NDArray) -> dict[str, float]:
    """Return exact match and every average of two boolean (N, J) arrays."""
    predicted, targets = predicted.astype(bool), targets.astype(bool)
    result = {"exact_match": float((predicted == targets).all(1).mean())}
    for average in AVERAGES:
        precision, recall, f1, _ = _precision_recall_f1(targets, predicted, average)
        result[f"{average}_precision"] = float(precision)
        result[f"{average}_recall"] = float(recall)
        result[f"{average}_f1"] = float(f1)
    return result


def per_class(
    predicted: NDArray, targets: NDArray, labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one row per class: precision, recall, F1, and how many texts have it."""
    columns = _precision_recall_f1(targets.astype(bool), predicted.astype(bool), None)
    names = ("precision", "recall", "f1", "texts")
    return [
        {"label": label, **dict(zip(names, map(float, row), strict=True))}
        | {"texts": int(row[-1])}
        for label, row in zip(labels, zip(*columns, strict=True), strict=True)
    ]


def _precision_recall_f1(
    targets: NDArray, predicted: NDArray, average: str | None
) -> tuple[Any, Any, Any, Any]:
    """Return what scikit-learn's `precision_recall_fscore_support` does, sooner.

    That function checks its arguments for milliseconds, and is called for every epoch
    of every run; importing it takes a second.
    """
    axis = {"micro": None, "samples": 1}.get(average or "macro", 0)
    hits, given = (targets & predicted).sum(axis), predicted.sum(axis)
    true = targets.sum(axis)
    parts = (_ratio(hits, given), _ratio(hits, true), _ratio(2 * hits, given + true))
    if average is None:
        return *parts, true
    precision, recall, f1 = (float(part.mean()) for part in parts)
    return precision, recall, f1, None


def _ratio(part: NDArray, whole: NDArray) -> NDArray:
    """Divide counts; nothing of nothing is zero."""
    whole = np.asarray(whole)
    zeros = np.zeros(whole.shape)
    return np.divide(part, whole, out=zeros, where=whole > 0)


def confusion(scores: NDArray, targets: NDArray) -> NDArray:
    """Return counts (J, J): true class down, highest score across."""
    true, guess = targets.argmax(1), highest(scores)
    counts = np.zeros((targets.shape[1],) * 2, dtype=np.int64)
    np.add.at(counts, (true[guess >= 0], guess[guess >= 0]), 1)
    return counts
