"""Evaluate a model on labelled texts: every figure has its name, nothing is tuned."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.checks import check_threshold, read_column
from textcapsules.base.errors import DataError, InputError, warn
from textcapsules.base.files import file_sha256
from textcapsules.config import DataConfig, RunConfig
from textcapsules.data.example import Example
from textcapsules.data.load import is_file
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.score import highest, past
from textcapsules.text.encode import Cuts
from textcapsules.training.metrics import (
    confusion,
    multi_label,
    per_class,
    single_label,
)
from textcapsules.training.prepare import target_matrix

__all__ = ["Evaluation", "evaluate", "evaluate_scores", "evaluation_data"]

PUBLISHED_THRESHOLD = 0.5


class Evaluation(NamedTuple):
    """Figures of one model on one set of texts."""

    texts: int
    single_label: dict[str, float] | None  # None where texts have several labels
    multi_label: dict[str, float]  # with the model's own, calibrated thresholds
    multi_label_at_half: dict[str, float]  # with the published threshold, 0.5
    per_class: list[dict[str, Any]]
    confusion: NDArray | None  # (J, J), None where texts have several labels
    cut: Cuts = Cuts()  # how much of the texts was not read
    refused: int = 0  # texts outside the training topics, counted as without a label

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        values = self._asdict()
        del values["cut"]  # the model's limit belongs to it
        values["confusion"] = (
            None if self.confusion is None else self.confusion.tolist()
        )
        return values


def evaluate(
    classifier: TextClassifier,
    examples: Sequence[Example],
    *,
    threshold: float | None = None,
    source: str = "the texts",
    refuse: bool = True,
) -> Evaluation:
    """Evaluate a classifier on labelled texts.

    Args:
        classifier: the model.
        examples: the texts, with their labels.
        threshold: replaces those of all classes.
        source: the name of the texts, for messages.
        refuse: give texts outside the training topics no label, as `predict` does.
    """
    check_threshold(threshold)
    check_examples(examples, source)
    targets = target_matrix(examples, classifier.labels.names, source)
    reading = classifier.read([example.text for example in examples])
    thresholds = classifier.labels.thresholds if threshold is None else threshold
    return evaluate_scores(
        reading.scores,
        targets,
        classifier.labels.names,
        thresholds,
        several=classifier.labels.task == "multi-label",
        outside=reading.outside if refuse else None,
        at_least_one=threshold is None and classifier.labels.at_least_one,
    )._replace(cut=reading.cuts)


def check_examples(examples: Sequence[Example], source: str) -> None:
    """Refuse anything but a list of labelled texts."""
    for place, example in enumerate(read_column(examples, source)):
        if not isinstance(example, Example) or isinstance(example.labels, str):
            raise InputError(
                f"{source} must be of Example(text, labels), labels a tuple of names; "
                f"got {example!r:.40} at place {place}."
            )
    if not len(examples):
        raise DataError(f"{source} must hold at least one labelled text; got none.")


def evaluate_scores(
    scores: NDArray,
    targets: NDArray,
    labels: Sequence[str],
    thresholds: Sequence[float] | float,
    *,
    several: bool,
    outside: NDArray[np.bool_] | None = None,
    at_least_one: bool = False,
) -> Evaluation:
    """Evaluate the scores (N, J) of any model.

    Args:
        scores: (N, J).
        targets: (N, J), 1 where a text has a label.
        labels: the names of the J classes.
        thresholds: the score from which a class is predicted, one for each or for all.
        several: whether the per-class table counts every class past its threshold
            (a multi-label model) or only the highest.
        outside: (N,), texts that are refused: they count as without a label.
        at_least_one: as for `model.score.past`.
    """
    if outside is None:
        outside = np.zeros(len(scores), dtype=bool)
    # Without a score above zero, as a text of which no word is known.
    scores = np.where(outside[:, None], np.zeros_like(scores), scores)
    is_single = bool((targets.sum(1) == 1).all())
    given = past(scores, thresholds, at_least_one=at_least_one)
    top = np.arange(scores.shape[1]) == highest(scores)[:, None]
    return Evaluation(
        texts=len(scores),
        single_label=single_label(scores, targets) if is_single else None,
        multi_label=multi_label(given, targets),
        multi_label_at_half=multi_label(scores >= PUBLISHED_THRESHOLD, targets),
        per_class=per_class(
            given if several or not is_single else top, targets, labels
        ),
        confusion=confusion(scores, targets) if is_single else None,
        refused=int(outside.sum()),
    )


def evaluation_data(
    config: RunConfig,
    changes: Mapping[str, Any],
    split: str,
    record: Mapping[str, Any] | None = None,
) -> DataConfig:
    """Return where the texts to evaluate a model on come from.

    Args:
        config: the options that the model was trained with.
        changes: data options to change. With a `source`, the texts are other ones, in
            the columns that the model was trained with.
        split: train, dev or test.
        record: of the model's training, which tells its texts by their content: a
            model may be judged from another folder, or on a copy of the file.
    """
    if "source" not in changes:
        data = config.replace(data=changes).data
        if split == "test" and data.test is None and is_file(data.source):
            raise DataError(
                f"the model must have a test set to be judged on; got none beside "
                f"{data.source}, on which it was trained. Name a file with --data, or "
                "take --split dev."
            )
        return data
    # The columns are those of the training file; how that file was written is not.
    of_file = ("dev", "test", "add", "delimiter", "encoding", "skip_empty")
    fresh = {name: getattr(DataConfig(), name) for name in of_file}
    data = config.replace(data={**fresh, **changes}).data
    is_judged = split == "test" and data.test is None and is_file(data.source)
    if is_judged and is_trained_on(data.source, config.data, record or {}):
        warn(
            f"{data.source} holds the texts the model was trained on, so the "
            "figures are too good. Leave out --data and take --split dev, or name "
            "other texts."
        )
    return data


def is_trained_on(source: str, trained: DataConfig, record: Mapping[str, Any]) -> bool:
    """Tell whether a file is the one that a model was trained on, or a copy of it."""
    path, name = Path(source), Path(trained.source).name
    if path.resolve() == Path(trained.source).resolve():
        return True
    files = record.get("corpus", {}).get("files", {})
    others = [Path(file).name for file in (trained.dev, trained.test) if file]
    known = None if name in others else files.get(name, {}).get("sha256")
    return known is not None and path.is_file() and file_sha256(path) == known
