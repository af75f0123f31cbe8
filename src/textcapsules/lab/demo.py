"""What a user would pick instead: TF-IDF features and a linear model.

The baseline reads text, gives scores between 0 and 1, and is calibrated and judged
exactly like a capsule network.

The demonstration: train on the embedded tickets, judge beside the TF-IDF baseline.

The tickets are synthetic. Capsule network and baseline see the same training texts, and
both choose their threshold on the same development documents, single and joined.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import WriteError
from textcapsules.base.files import write_json, write_text
from textcapsules.base.progress import percent
from textcapsules.config import RunConfig, preset
from textcapsules.data.example import Corpus
from textcapsules.data.tickets import read_tickets
from textcapsules.draw.pictures import plot_confusion
from textcapsules.draw.report import METRICS, render_report
from textcapsules.inference.evaluate import Evaluation, evaluate, evaluate_scores
from textcapsules.inference.report import ReportTable, make_report
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.calibrate import best_threshold, join_texts, joined_pairs
from textcapsules.training.loop import Step
from textcapsules.training.prepare import target_matrix
from textcapsules.training.run import Watch, train

__all__ = ["SYSTEMS", "DemoResult", "TfidfClassifier", "demo_config", "run_demo"]


class TfidfClassifier:
    """TF-IDF of words and word pairs, then logistic regression.

    Where every text has one label it is one regression over the classes; where some
    have several, one for each class.
    """

    def __init__(self, *, C: float = 10.0) -> None:
        self.C = C

    def fit(self, texts: Sequence[str], targets: NDArray) -> "TfidfClassifier":
        """Learn from texts and their labels, targets (N, J)."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.pipeline import make_pipeline

        regression = LogisticRegression(C=self.C, max_iter=1000)
        several = bool((targets.sum(1) > 1).any())
        self.pipeline = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            OneVsRestClassifier(regression) if several else regression,
        )
        self.columns = np.arange(targets.shape[1])
        self.pipeline.fit(texts, targets if several else targets.argmax(1))
        self.seen = self.columns if several else self.pipeline.classes_
        return self

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return every class's probability for every text, (N, J)."""
        scores = np.zeros((len(texts), len(self.columns)), dtype=np.float32)
        scores[:, self.seen] = self.pipeline.predict_proba(texts)
        return scores


OUTPUTS = ("results.json", "confusion.png", "report.html")
SYSTEMS = {"capsules": "capsule network", "tfidf": "TF-IDF + logistic regression"}


class DemoResult(NamedTuple):
    """The trained model and both systems' figures, single test and multi test."""

    classifier: TextClassifier
    single: dict[str, Evaluation]  # by system
    multi: dict[str, Evaluation]
    report: Path


def demo_config() -> RunConfig:
    """Return the options: preset best, made small, for two cores and about a minute.

    Without word vectors from a file there is more to learn: whole words are dropped in
    training, and some tickets are joined. Chosen on dev among some fifty settings
    (reproduction/FINDINGS.md).
    """
    return preset("best").replace(
        data={"source": "tickets-multi"},
        model={
            "embedding_size": 128,
            "filters": 64,
            "capsule_types": 8,
            "capsule_size": 32,
            "word_dropout": 0.2,
        },
        train={"epochs": 6, "joined": 0.33, "joined_share": 1.0},
    )


def run_demo(
    folder: Path | str,
    *,
    config: RunConfig | None = None,
    overwrite: bool = False,
    on_step: Callable[[Step], None] | None = None,
    on_epoch: Watch | None = None,
) -> DemoResult:
    """Train, judge and write a report into `folder`."""
    folder = Path(folder)
    check_outputs(folder, overwrite)
    classifier = train(
        config or demo_config(),
        folder / "model",
        overwrite=overwrite,
        on_step=on_step,
        on_epoch=on_epoch,
    )
    multi = read_tickets("tickets-multi")
    single = read_tickets("tickets")
    baseline, threshold = train_baseline(multi)
    judged: dict[str, dict[str, Evaluation]] = {}
    for corpus in (single, multi):
        targets = target_matrix(corpus.test, corpus.labels)
        scores = baseline.scores([example.text for example in corpus.test])
        judged[corpus.name] = {
            "capsules": evaluate(classifier, corpus.test),
            "tfidf": evaluate_scores(
                scores, targets, corpus.labels, threshold, several=True
            ),
        }
    report = write_report(folder, classifier, judged)
    return DemoResult(classifier, judged["tickets"], judged["tickets-multi"], report)


def check_outputs(folder: Path, overwrite: bool) -> None:
    """Refuse to replace a report unless told to."""
    for name in OUTPUTS:
        if (folder / name).exists() and not overwrite:
            raise WriteError(
                f"{folder / name} must not exist yet; got an existing file. Pass "
                "--overwrite, or name another folder."
            )


def train_baseline(corpus: Corpus) -> tuple[TfidfClassifier, float]:
    """Fit the baseline as the network is: joined training texts on offer, dev decides.

    Its regularisation, whether it trains on joined texts too, and its threshold are
    those with the best exact match on the documents that calibrate the network: the
    single dev texts and as many joined ones, of the same pairs.
    """
    texts = [example.text for example in corpus.train]
    targets = target_matrix(corpus.train, corpus.labels)
    with_joined = [(texts, targets), joined_set(texts, targets)]
    dev_texts, dev_targets = joined_set(
        [example.text for example in corpus.dev],
        target_matrix(corpus.dev, corpus.labels),
    )
    best: tuple[float, float, TfidfClassifier] | None = None
    for train_texts, train_targets in with_joined:
        for C in (1.0, 10.0, 100.0):
            baseline = TfidfClassifier(C=C).fit(train_texts, train_targets)
            threshold, value = best_threshold(baseline.scores(dev_texts), dev_targets)
            if best is None or value > best[0]:
                best = (value, threshold, baseline)
    assert best is not None
    return best[2], best[1]


def joined_set(texts: list[str], targets: NDArray) -> tuple[list[str], NDArray]:
    """Return texts and as many joined ones, in pairs as the network has them on dev."""
    config = demo_config()
    pairs = joined_pairs(
        targets, len(texts), config.data.split_seed, by=config.train.joined_by
    )
    joined = join_texts(
        texts,
        pairs,
        share=config.train.joined_share,
        seed=config.data.split_seed,
    )
    both = targets[pairs[:, 0]] + targets[pairs[:, 1]]  # a pair shares no label
    return [*texts, *joined], np.concatenate([targets, both])


def write_report(
    folder: Path, classifier: TextClassifier, judged: dict[str, dict[str, Evaluation]]
) -> Path:
    """Write `results.json`, the confusion matrix and the page; return the page."""
    single, multi = judged["tickets"], judged["tickets-multi"]
    values = {
        corpus: {name: figures.to_dict() for name, figures in by_system.items()}
        for corpus, by_system in judged.items()
    }
    write_json(folder / "results.json", values)
    matrix = single["capsules"].confusion
    assert matrix is not None  # every ticket of the single test has one topic
    plot_confusion(matrix, classifier.labels.names, folder / "confusion.png")
    report = make_report(
        classifier,
        read_tickets("tickets-multi").test,
        source="synthetic tickets of two or three topics",
        title="Synthetic support tickets: one topic in training, several in use",
        lead=(
            "The tickets are synthetic, from a seeded generator. Every training ticket "
            "carries one topic. Thresholds were chosen on development tickets, single "
            "ones and as many pairs joined together, for both systems alike; no test "
            "ticket was looked at."
        ),
        tables=[comparison(single, multi)],
        confusion=matrix,
    )
    write_text(folder / "report.html", render_report(report))
    return folder / "report.html"


def comparison(
    single: dict[str, Evaluation], multi: dict[str, Evaluation]
) -> ReportTable:
    """Return both systems' figures side by side."""
    rows = [
        (
            title,
            percent((single[name].single_label or {})["accuracy"]),
            *(percent(multi[name].multi_label[key]) for key in METRICS.values()),
        )
        for name, title in SYSTEMS.items()
    ]
    return ReportTable(
        "Beside a linear baseline, in percent",
        ("system", "accuracy", *METRICS),
        rows,
        f"Accuracy: {single['capsules'].texts:,} tickets of one topic. The rest: "
        f"{multi['capsules'].texts:,} of two or three.",
    )
