"""The systems that are compared, and the settings among which dev chooses for each."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from textcapsules.config import RunConfig, default_preset, preset, rebase
from textcapsules.data.example import Corpus
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.run import train

__all__ = [
    "LINEAR_RATES",
    "Rival",
    "best_on_dev",
    "dev_score",
    "linear_rival",
    "list_rivals",
]

COSTS = (1.0, 10.0, 100.0)  # C of logistic regression, among which dev chooses
SVM_COSTS = (0.1, 1.0, 10.0)  # C of the SVM
# Options of training that all systems share that are compared.
FOR_ALL = (
    "task",
    "seed",
    "refuse",
    "select",
    "calibrate_on",
    "thresholds",
    "threshold_for",
    "joined_by",
    "joined_share",
)
LINEAR_RATES = (2e-3, 2e-2)  # learning rates of a linear layer on an encoder


class Rival(NamedTuple):
    """A system to compare, and the settings among which dev chooses."""

    name: str
    title: str
    settings: Sequence[RunConfig]  # the default first


def linear_rival(corpus: Corpus, config: RunConfig | None = None) -> TextClassifier:
    """Train TF-IDF with logistic regression on the training texts of a corpus.

    Dev chooses its regularisation, and whether it trains on joined texts too. Trained
    on single texts alone, it is one regression over all classes.

    Args:
        corpus: the texts; those of its test set are not looked at.
        config: the options of the model that it is compared with; those of the data, of
            the task and of the thresholds hold for it too.
    """
    return best_on_dev(linear_settings(config or preset("best")), corpus)


def linear_settings(
    config: RunConfig, kind: str = "tfidf-lr", costs: Sequence[float] = COSTS
) -> list[RunConfig]:
    """Return the settings of a linear model among which dev chooses."""
    if config.text.encoder is not None:  # a linear model reads words
        shared = {name: getattr(config.train, name) for name in FOR_ALL}
        base = preset("best").replace(data=asdict(config.data), train=shared)
    else:
        base = config
    base = base.replace(
        # Words on both sides of an unknown one are no pair.
        text={"unknown": "keep", "vectors": None},
        model={"architecture": kind},
    )
    # A regression over all classes at once; an SVM has one plane per class anyway.
    together = {"loss": {"loss": "cross-entropy"}} if kind == "tfidf-lr" else {}
    variants: list[dict[str, dict[str, Any]]] = [
        {**together, "train": {"joined": 0.0}},
        {"loss": {"loss": "auto"}, "train": {"joined": 1.0}},
    ]
    return [
        base.replace(baseline={"tfidf_c": C}, **variant)
        for variant, C in product(variants, costs)
    ]


def best_on_dev(configs: Sequence[RunConfig], corpus: Corpus) -> TextClassifier:
    """Train with each of some options, and return the best on dev."""
    candidates = []
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        for number, config in enumerate(configs):
            place = Path(folder) / str(number)
            candidates.append(train(config, place, corpus=corpus, test_reasons=False))
    return max(candidates, key=dev_score)


def dev_score(classifier: TextClassifier) -> float:
    """Return the figure that the kept epoch was chosen by."""
    record = classifier.record
    return record["epochs"][record["best_epoch"] - 1]["dev_score"]


def list_rivals(config: RunConfig, encoder: str | None = None) -> list[Rival]:
    """Return the systems to compare, the cheap ones first.

    Where a text may get several labels, dev chooses for each of them whether it trains
    on joined texts too. What costs least has the most settings.

    Args:
        config: the options that all of them share; its task is settled.
        encoder: a pretrained encoder; two more rivals stand on it.
    """
    several = config.train.task == "multi-label"
    amounts = (0.0, 1.0) if several else (0.0,)

    def settings(architecture: str, **sections: dict[str, Any]) -> list[RunConfig]:
        base = config.replace(model={"architecture": architecture}, **sections)
        return [base.replace(train={"joined": amount}) for amount in amounts]

    linear = linear_settings(config, "tfidf-svm", SVM_COSTS)
    if not several:
        linear = [each for each in linear if not each.train.joined]
    linear.sort(key=lambda each: each.baseline.tfidf_c != 1.0)  # the default first
    rivals = [
        Rival("tfidf-svm", "TF-IDF + SVM", linear),
        Rival("cnn", "CNN", settings("cnn")),
        Rival("capsules", "capsules", settings("capsule-b")),
    ]
    if encoder is None:
        return rivals
    name, base = Path(encoder).name, rebase(config, default_preset(encoder))
    base = base.replace(text={"encoder": encoder, "vectors": None})
    if not several:
        base = base.replace(train={"joined": 0.0})
    layer = base.replace(model={"architecture": "encoder-linear"})
    layers = [layer.replace(train={"learning_rate": rate}) for rate in LINEAR_RATES]
    return [
        *rivals,
        Rival("encoder-linear", f"linear on {name}", layers),
        Rival("encoder-capsules", f"capsules on {name}", [base]),
    ]
