"""Rivals on the same texts: trained alike, chosen on dev."""

import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from textcapsules.config import RunConfig, preset
from textcapsules.data.example import Corpus
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.run import train

__all__ = ["best_on_dev", "linear_rival"]

COSTS = (1.0, 10.0, 100.0)  # C of the linear model, among which dev chooses


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


def linear_settings(config: RunConfig, kind: str = "tfidf-lr") -> list[RunConfig]:
    """Return the settings of a linear model among which dev chooses."""
    base = config.replace(
        # Words on both sides of an unknown one are no pair.
        text={"unknown": "keep", "encoder": None, "vectors": None},
        model={"architecture": kind},
        loss={"loss": "auto"},
    )
    variants = [
        {"loss": {"loss": "cross-entropy"}, "train": {"joined": 0.0}},
        {"train": {"joined": 1.0}},
    ]
    return [
        base.replace(baseline={"tfidf_c": C}, **variant)
        for variant, C in product(variants, COSTS)
    ]


def best_on_dev(configs: Sequence[RunConfig], corpus: Corpus) -> TextClassifier:
    """Train with each of some options, and return the best on dev."""
    candidates = []
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        for number, config in enumerate(configs):
            candidates.append(train(config, Path(folder) / str(number), corpus=corpus))
    return max(candidates, key=dev_score)


def dev_score(classifier: TextClassifier) -> float:
    """Return the figure that the kept epoch was chosen by."""
    record = classifier.record
    return record["epochs"][record["best_epoch"] - 1]["dev_score"]
