"""A small corpus, small rivals and a clock of one's own, for tests of `compare`."""

from textcapsules.config import RunConfig, preset
from textcapsules.data.example import Corpus, Example
from textcapsules.inference.compare.rivals import Rival
from toy import TINY_MODEL, TINY_TRAIN, TOPICS, toy_rows

LABELS = tuple(sorted(TOPICS))


def toy_corpus(n_train: int = 60, n_test: int = 30) -> Corpus:
    """Return a corpus of toy texts with one label each."""
    train, dev, test = (
        [Example(text, (label,)) for text, label in toy_rows(n, seed)]
        for seed, n in enumerate((n_train, 18, n_test))
    )
    return Corpus("toy", LABELS, train, dev, test, "single-label", "words", {})


def tiny(**sections) -> RunConfig:
    """Return options of networks that train in a moment."""
    task = {"task": "multi-label", "epochs": 2}
    config = preset("best").replace(
        model={**TINY_MODEL, "joint": False, "ngram_sizes": (1,)},
        train={**TINY_TRAIN, **task},
        baseline={"feature_maps": 4},
    )
    return config.replace(**sections)


def two_rivals(config: RunConfig, encoder: str | None = None) -> list[Rival]:
    """Return the SVM, and a CNN with two settings."""
    linear = config.replace(
        model={"architecture": "tfidf-svm"}, text={"unknown": "keep"}
    )
    network = config.replace(model={"architecture": "cnn"})
    joined = network.replace(train={"joined": 1.0})
    return [Rival("svm", "SVM", [linear]), Rival("cnn", "CNN", [network, joined])]
