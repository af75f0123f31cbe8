"""Thresholds from a few texts that a person has reviewed, and what they are worth.

The rule is `calibrate.reviewed_thresholds`. What it is worth is estimated by leaving
out: the labels of each text are decided with thresholds fitted on the others. Texts
that were reviewed because their labels were uncertain help to find the thresholds, but
they stand for no others: the estimate uses the texts drawn at random alone, if it is
known which ones those are. A text that the model refuses as outside its topics counts
as without a label in the estimate, as it does in use.

Thresholds that suit texts with one label leave some without any. The reviewed texts
tell whether those deserve one: if more texts left out come out right that way, a text
without a score past its threshold gets the label whose score comes nearest.

In a model folder, the former thresholds are kept beside the new ones, in
`labels.former.json`, a stack from which `undo_thresholds` takes the last.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.checks import read_column, read_texts
from textcapsules.base.errors import InputError, ModelFolderError
from textcapsules.base.files import file_sha256, json_bytes, write_bytes
from textcapsules.base.sums import read_json, read_record, write_record
from textcapsules.data.example import Example
from textcapsules.model.classifier import (
    FORMER,
    Labels,
    TextClassifier,
    read_run_config,
    weights_file,
)
from textcapsules.model.score import past
from textcapsules.training.calibrate import exact_match, micro_f1, reviewed_thresholds
from textcapsules.training.folder import check_folder, locked
from textcapsules.training.prepare import target_matrix

__all__ = [
    "Estimate",
    "Recalibration",
    "fit_reviews",
    "model_identity",
    "recalibrate",
    "save_copy",
    "save_in_place",
    "undo_thresholds",
]

MAX_PARTS = 100  # of texts left out in turn; one text each up to so many
DRAWS = 1000  # of the bootstrap
LEVEL = 1.96  # standard deviations of an interval of 95 %


class Estimate(NamedTuple):
    """Figures on some texts, with intervals of 95 %."""

    texts: int
    exact_match: float
    exact_match_interval: tuple[float, float]  # Wilson's
    micro_f1: float
    micro_f1_interval: tuple[float, float]  # by the bootstrap


class Recalibration(NamedTuple):
    """New thresholds, and what they and those before any review are worth."""

    labels: tuple[str, ...]
    before: tuple[float, ...]  # thresholds that owe nothing to reviewed texts
    after: tuple[float, ...]
    texts: int  # reviewed
    on: str  # the texts that the estimates are for
    value_before: Estimate
    value_after: Estimate  # by leaving out
    is_worse: bool  # the new ones, on all reviewed texts
    at_least_one: bool = False  # whether every text gets a label

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        values = self._asdict()
        return {
            **values,
            "value_before": self.value_before._asdict(),
            "value_after": self.value_after._asdict(),
        }


def recalibrate(
    classifier: TextClassifier,
    texts: Sequence[str],
    labels: Sequence[Sequence[str]],
    *,
    is_random: Sequence[bool] | None = None,
    source: str = "the reviewed texts",
) -> Recalibration:
    """Fit thresholds to reviewed texts; the classifier itself is not changed.

    Args:
        classifier: any trained model.
        texts: ten are enough to gain by.
        labels: all labels of each text; a text may have none.
        is_random: which texts were drawn at random; by default all.
        source: what the texts are called in messages.
    """
    targets = reviewed_targets(classifier.labels.names, texts, labels, source)
    reading = classifier.read(texts)
    return fit_reviews(
        reading.scores,
        targets,
        classifier.labels.names,
        unreviewed(classifier),
        None if is_random is None else np.asarray(is_random, dtype=bool),
        reading.outside,
    )


def unreviewed(classifier: TextClassifier) -> tuple[float, ...]:
    """Return a model's thresholds from before any review.

    They are the prior also if it was recalibrated since: texts that were reviewed must
    not count twice.
    """
    known = classifier.record.get("calibration", {}).get("before_reviews")
    return classifier.labels.thresholds if known is None else tuple(known)


def reviewed_targets(
    names: Sequence[str],
    texts: Sequence[str],
    labels: Sequence[Sequence[str]],
    source: str,
) -> NDArray[np.bool_]:
    """Return 1 where a text has a label, (N, J); refuse labels of other models."""
    given = list(read_column(labels, "labels"))
    texts = read_texts(texts)
    if len(given) != len(texts) or not texts:
        raise InputError(
            f"labels must be one list of names per text; got {len(given)} for "
            f"{len(texts)} texts."
        )
    for row, each in enumerate(given):
        if isinstance(each, str) or not all(isinstance(name, str) for name in each):
            raise InputError(
                f"labels must be one list of names per text; got {each!r:.40} at place "
                f"{row}. Put it in a list."
            )
    examples = [Example(*pair) for pair in zip(texts, map(tuple, given), strict=True)]
    return target_matrix(examples, names, source).astype(bool)


def fit_reviews(
    scores: NDArray,
    targets: NDArray,
    names: Sequence[str],
    thresholds: Sequence[float],
    is_random: NDArray[np.bool_] | None = None,
    outside: NDArray[np.bool_] | None = None,
) -> Recalibration:
    """Fit thresholds to reviewed texts, and estimate what they are worth.

    Args:
        scores: (N, J).
        targets: (N, J), all labels of each text.
        names: of the J labels.
        thresholds: those before any review, (J,).
        is_random: which texts were drawn at random; by default all.
        outside: (N,), which texts are refused: they get no label by any thresholds,
            but their scores help to find them.
    """
    present = np.asarray(thresholds)
    before = past(scores, present)
    after, one_each = decide_left_out(scores, targets, present)
    if outside is not None:
        for each in (before, after, one_each):
            each[outside] = False
    at_least_one = exact_match(one_each, targets) > exact_match(after, targets)
    if at_least_one:
        after = one_each
    if is_random is None or is_random.all() or not is_random.any():
        # A table that no review has written has no marks: nothing was drawn.
        rows = np.ones(len(scores), dtype=bool)
        drawn = is_random is None or is_random.all()
        on = "all" if drawn else "all; none was drawn at random"
    else:
        rows, on = is_random, "those drawn at random"
    figures = [
        (exact_match(each, targets), micro_f1(each, targets))
        for each in (before, after)
    ]
    return Recalibration(
        labels=tuple(names),
        before=tuple(thresholds),
        after=tuple(reviewed_thresholds(scores, targets, present).tolist()),
        texts=len(scores),
        on=on,
        value_before=estimate(before[rows], targets[rows]),
        value_after=estimate(after[rows], targets[rows]),
        is_worse=figures[1] < figures[0],
        at_least_one=at_least_one,
    )


def decide_left_out(
    scores: NDArray, targets: NDArray, present: NDArray
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Decide each text's labels with thresholds fitted on the other texts.

    Returns:
        The labels past their thresholds, (N, J), and the same with at least one each.
    """
    part = np.arange(len(scores)) % MAX_PARTS
    decided, one_each = (np.empty(targets.shape, dtype=bool) for _ in range(2))
    for each in np.unique(part):
        out = part == each
        fitted = reviewed_thresholds(scores[~out], targets[~out], present)
        decided[out] = past(scores[out], fitted)
        one_each[out] = past(scores[out], fitted, at_least_one=True)
    return decided, one_each


def estimate(predicted: NDArray, targets: NDArray) -> Estimate:
    """Return the figures of decisions (N, J), each with its interval."""
    random = np.random.default_rng(0)
    draws = random.integers(len(targets), size=(DRAWS, len(targets)))
    hits = (predicted & targets).sum(1)
    sizes = predicted.sum(1) + targets.sum(1)
    f1 = 2 * hits[draws].sum(1) / np.maximum(sizes[draws].sum(1), 1)
    low, high = np.quantile(f1, [0.025, 0.975])
    share = exact_match(predicted, targets)
    return Estimate(
        len(targets),
        share,
        wilson(share, len(targets)),
        micro_f1(predicted, targets),
        (float(low), float(high)),
    )


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's interval of 95 % for a share of n.

    >>> [round(each, 3) for each in wilson(0.8, 20)]
    [0.584, 0.919]
    """
    spread = LEVEL**2 / n
    centre = share + spread / 2
    reach = LEVEL * np.sqrt(share * (1 - share) / n + spread / (4 * n))
    low, high = (centre - reach) / (1 + spread), (centre + reach) / (1 + spread)
    return max(0.0, float(low)), min(1.0, float(high))


def apply(classifier: TextClassifier, fitted: Recalibration) -> None:
    """Give a classifier the new thresholds, and its record what they come from."""
    classifier.labels = classifier.labels._replace(
        thresholds=fitted.after, at_least_one=fitted.at_least_one
    )
    classifier.record = {**classifier.record, "calibration": describe(fitted)}


def describe(fitted: Recalibration) -> dict[str, Any]:
    """Return what a model's record says about its thresholds."""
    return {
        "thresholds": list(fitted.after),
        "before_reviews": list(fitted.before),
        "at_least_one": fitted.at_least_one,
        "value": fitted.value_after.exact_match,
        "interval": list(fitted.value_after.exact_match_interval),
        "objective": "exact-match",
        "documents": fitted.texts,
        "on": f"{fitted.texts} reviewed texts",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def model_identity(folder: Path | str) -> str:
    """Return what tells a model from others: its weights, whatever its thresholds."""
    folder = Path(folder)
    name = weights_file(read_run_config(folder))
    known = read_record(folder)[1].get(name)
    return (known if isinstance(known, str) else file_sha256(folder / name))[:16]


def save_copy(
    classifier: TextClassifier, fitted: Recalibration, folder: Path | str
) -> None:
    """Write the model with its new thresholds to a folder that is new or empty."""
    check_folder(Path(folder), overwrite=False, may_replace=False)
    changed = TextClassifier(
        classifier.config,
        classifier.tokenizer,
        classifier.labels,
        classifier.network,
        classifier.record,
        classifier.rule,
    )
    apply(changed, fitted)
    with locked(Path(folder)):
        changed.save(folder)


def save_in_place(
    classifier: TextClassifier, fitted: Recalibration, folder: Path | str
) -> None:
    """Give a classifier and its folder the new thresholds; keep the former beside them.

    Killed at any moment, it leaves a folder with either the old or the new thresholds.
    """
    folder = Path(folder)
    with locked(folder):
        former = read_former(folder)
        record, _ = read_record(folder)
        kept = {
            "labels": read_json(folder / "labels.json"),
            "calibration": record.get("calibration"),
        }
        if kept not in former[-1:]:  # else an attempt that was killed has kept it
            content = json_bytes({"former": [*former, kept]})
            write_bytes(folder / FORMER, content)
        apply(classifier, fitted)
        classifier.save_labels(folder)
        record, sums = read_record(folder)
        write_record(folder, {**record, "calibration": describe(fitted)}, sums)


def undo_thresholds(folder: Path | str) -> Labels:
    """Restore the thresholds before the last `save_in_place`, and return them."""
    folder = Path(folder)
    read_run_config(folder)  # says so if it is no model folder
    with locked(folder):
        former = read_former(folder)
        if not former:
            raise ModelFolderError(
                f"{folder} must have former thresholds to restore; got none in "
                f"{FORMER}. Nothing was changed."
            )
        *older, last = former
        classifier = TextClassifier.load(folder, "cpu")
        values = last["labels"]
        thresholds = tuple(float(row["threshold"]) for row in values["labels"])
        names = tuple(row["name"] for row in values["labels"])
        at_least_one = bool(values.get("at_least_one", False))
        classifier.labels = Labels(names, thresholds, values["task"], at_least_one)
        classifier.save_labels(folder)
        record, sums = read_record(folder)
        if last["calibration"] is not None:
            write_record(folder, {**record, "calibration": last["calibration"]}, sums)
        if older:
            write_bytes(folder / FORMER, json_bytes({"former": older}))
        else:
            (folder / FORMER).unlink()
        return classifier.labels


def read_former(folder: Path) -> list[dict[str, Any]]:
    """Return the former thresholds of a folder, the last ones last."""
    if not (folder / FORMER).exists():
        return []
    former = read_json(folder / FORMER).get("former")
    try:
        for each in former or ():
            [float(row["threshold"]) for row in each["labels"]["labels"]]
            each["calibration"]
        return list(former or ())
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(
            f"{folder / FORMER} must list former thresholds; got {error!r}. Remove it."
        ) from error
