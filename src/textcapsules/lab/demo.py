"""The demonstration: a capsule network and a linear model on the embedded tickets.

The tickets are synthetic. The linear model, TF-IDF with logistic regression, is what a
user would pick instead. Both systems see the same training texts, and both choose their
threshold on the same development documents, single and joined. On a pretrained encoder
a third one can stand beside them, a linear layer on the mean of the same states.
"""

from pathlib import Path
from typing import NamedTuple

from textcapsules.base.errors import WriteError
from textcapsules.base.files import write_json, write_text
from textcapsules.base.progress import percent
from textcapsules.config import ENCODER_PRESET, RunConfig, preset
from textcapsules.data.example import Corpus
from textcapsules.data.tickets import read_tickets
from textcapsules.draw.pictures import plot_confusion
from textcapsules.draw.report import METRICS, render_report
from textcapsules.inference.compare import with_words
from textcapsules.inference.compare.rivals import (
    LINEAR_RATES,
    best_on_dev,
    linear_rival,
)
from textcapsules.inference.evaluate import Evaluation, evaluate
from textcapsules.inference.report import ReportTable, make_report
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.run import OnEncode, OnEpoch, OnStep, train

__all__ = [
    "DemoResult",
    "demo_config",
    "run_demo",
    "system_titles",
]

OUTPUTS = ("results.json", "confusion.png", "report.html")


class DemoResult(NamedTuple):
    """The trained model, and the figures of all systems on both test sets."""

    classifier: TextClassifier
    titles: dict[str, str]  # by system
    single: dict[str, Evaluation]
    multi: dict[str, Evaluation]
    report: Path


def demo_config(encoder: str | None = None) -> RunConfig:
    """Return preset encoder-frozen on an encoder, else preset best in small.

    The smaller network takes about a minute on two cores. Without word vectors from a
    file, dropping whole words in training and joining some tickets helps. Dev chose
    these options among some fifty settings (reproduction/FINDINGS.md).
    """
    data = {"source": "tickets-multi"}
    if encoder is not None:
        return preset(ENCODER_PRESET).replace(data=data, text={"encoder": encoder})
    return preset("best").replace(
        data=data,
        model={
            "embedding_size": 128,
            "filters": 64,
            "capsule_types": 8,
            "capsule_size": 32,
            "word_dropout": 0.2,
        },
        train={"epochs": 6, "joined": 0.33, "joined_share": 1.0},
    )


def system_titles(config: RunConfig, *, with_layer: bool = True) -> dict[str, str]:
    """Return the systems that are compared, and their names in tables."""
    titles = {"capsules": "capsule network", "tfidf": "TF-IDF + logistic regression"}
    if config.text.encoder is None:
        return titles
    name = Path(config.text.encoder).name
    layer = {"linear": f"linear layer on {name}"} if with_layer else {}
    return {
        "capsules": f"capsule network on {name}",
        **layer,
        "tfidf": titles["tfidf"],
    }


def run_demo(
    folder: Path | str,
    *,
    config: RunConfig | None = None,
    overwrite: bool = False,
    with_layer: bool = True,
    on_step: OnStep | None = None,
    on_epoch: OnEpoch | None = None,
    on_encode: OnEncode | None = None,
) -> DemoResult:
    """Train and evaluate all systems, and write a report into `folder`.

    Args:
        folder: where model and report are written.
        config: the options of the capsules.
        overwrite: replace an earlier demonstration.
        with_layer: on an encoder, train a linear layer on the same states as well.
        on_step: as for `train`, like the next two.
        on_epoch: called with the record of every epoch.
        on_encode: called while an encoder reads the texts.
    """
    folder, config = Path(folder), config or demo_config()
    check_outputs(folder, overwrite)
    classifier = train(
        config,
        folder / "model",
        overwrite=overwrite,
        on_step=on_step,
        on_epoch=on_epoch,
        on_encode=on_encode,
    )
    multi = read_tickets("tickets-multi")
    single = read_tickets("tickets")
    titles = system_titles(config, with_layer=with_layer)
    systems = {"capsules": classifier, "tfidf": linear_rival(multi, demo_config())}
    if "linear" in titles:
        systems["linear"] = train_linear(config, multi)
    titles = {name: with_words(titles[name], systems[name]) for name in titles}
    evaluations = {
        corpus.name: {name: evaluate(systems[name], corpus.test) for name in titles}
        for corpus in (single, multi)
    }
    report = write_report(
        folder, classifier, titles, evaluations, multi, systems["tfidf"]
    )
    single, several = evaluations["tickets"], evaluations["tickets-multi"]
    return DemoResult(classifier, titles, single, several, report)


def check_outputs(folder: Path, overwrite: bool) -> None:
    """Refuse to replace a report without `overwrite`."""
    for name in OUTPUTS:
        if (folder / name).exists() and not overwrite:
            raise WriteError(
                f"{folder / name} must not exist yet; got an existing file. Pass "
                "--overwrite, or name another folder."
            )


def train_linear(config: RunConfig, corpus: Corpus) -> TextClassifier:
    """Train a linear layer on the mean of the states that the capsules read."""
    base = config.replace(model={"architecture": "encoder-linear"})
    rates = [base.replace(train={"learning_rate": rate}) for rate in LINEAR_RATES]
    return best_on_dev(rates, corpus)


def write_report(
    folder: Path,
    classifier: TextClassifier,
    titles: dict[str, str],
    evaluations: dict[str, dict[str, Evaluation]],
    corpus: Corpus,
    rival: TextClassifier,
) -> Path:
    """Write `results.json`, the confusion matrix and the page; return the page."""
    single, multi = evaluations["tickets"], evaluations["tickets-multi"]
    values = {
        corpus: {name: each.to_dict() for name, each in by_system.items()}
        for corpus, by_system in evaluations.items()
    }
    write_json(folder / "results.json", values)
    matrix = single["capsules"].confusion
    assert matrix is not None  # every ticket of the single test has one topic
    plot_confusion(matrix, classifier.labels.names, folder / "confusion.png")
    report = make_report(
        classifier,
        corpus.test,
        source="synthetic tickets of two or three topics",
        title="Synthetic support tickets: one topic in training, several in use",
        lead=(
            "The tickets are synthetic, from a seeded generator. Every training ticket "
            "carries one topic. Thresholds were chosen on development tickets, single "
            "ones and as many pairs joined together, for all systems alike; no test "
            "ticket was looked at."
        ),
        tables=[comparison(titles, single, multi)],
        corpus=corpus,
        rival=rival,
        confusion=matrix,
    )
    write_text(folder / "report.html", render_report(report))
    return folder / "report.html"


def comparison(
    titles: dict[str, str],
    single: dict[str, Evaluation],
    multi: dict[str, Evaluation],
) -> ReportTable:
    """Return the figures of all systems side by side."""
    rows = [
        (
            title,
            percent((single[name].single_label or {})["accuracy"]),
            *(percent(multi[name].multi_label[key]) for key in METRICS.values()),
        )
        for name, title in titles.items()
    ]
    return ReportTable(
        "Beside a linear baseline, in percent",
        ("system", "accuracy", *METRICS),
        rows,
        f"Accuracy: {single['capsules'].texts:,} tickets of one topic. The rest: "
        f"{multi['capsules'].texts:,} of two or three.",
    )
