"""Rivals on the same texts: which system is best for them, and is that clear?

Every rival trains on the same texts, is chosen on the same dev texts and gets its
thresholds there, by one rule. The test texts are read once, at the end.

`rivals` lists the systems and their settings, `time_plan` trains what fits into the
minutes, and `judge` measures the test texts.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textcapsules.base.errors import DataError
from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus, Example
from textcapsules.data.split import hold_out
from textcapsules.inference.compare.judge import Figure, Judged, TestTexts, interval
from textcapsules.inference.compare.rivals import dev_score, list_rivals
from textcapsules.inference.compare.time_plan import (
    Chosen,
    TimePlan,
    Watch,
    check_minutes,
    train_rivals,
)
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.prepare import check_corpus

__all__ = [
    "Comparison",
    "Figure",
    "Result",
    "compare",
    "with_test_texts",
    "with_words",
]


class Result(NamedTuple):
    """What was measured of one rival."""

    name: str
    title: str
    config: RunConfig  # the setting that dev chose
    figures: dict[str, dict[str, Figure]]  # by texts (single, joined, ...) and measure
    behind: Figure  # of the best rival's score, less this one's; zero for the best
    dev_score: float
    train_seconds: float  # of the chosen setting
    texts_per_second: float
    n_settings: int  # that were tried
    note: str  # what the time did not allow; empty if nothing
    epochs: int = 1  # of training
    planned_epochs: int = 1  # that it should have had
    refused: float = 0.0  # share of the test texts that it takes for off-topic
    off_topic_refused: float = 0.0  # the same of texts that are (`data.off_topic`)

    @property
    def is_short(self) -> bool:
        """Whether it had fewer epochs than it should have."""
        return self.epochs < self.planned_epochs


class Comparison(NamedTuple):
    """All results, the best first."""

    results: list[Result]
    left_out: dict[str, str]  # by title: why
    judged_on: str  # texts by which the best is best
    judged_by: str  # and the measure
    texts: dict[str, int]  # train, dev and the kinds of test texts
    minutes: float  # that were given
    seconds: float  # that it took

    @property
    def best(self) -> Result:
        """The rival with the highest score."""
        return self.results[0]

    def equals(self) -> list[Result]:
        """Return the rivals whose distance to the best is within noise."""
        return [each for each in self.results[1:] if each.behind.low <= 0]

    def unfair(self) -> list[str]:
        """Return the titles of rivals that had too little time to show what they can.

        A network that ended early never had the low learning rate of its last epochs.
        """
        short = [each.title for each in self.results[1:] if each.is_short]
        return [*short, *self.left_out]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        results = [
            {
                **each._asdict(),
                "config": each.config.to_dict(),
                "figures": {
                    texts: {name: list(figure) for name, figure in figures.items()}
                    for texts, figures in each.figures.items()
                },
                "behind": list(each.behind),
            }
            for each in self.results
        ]
        return {**self._asdict(), "results": results}


def with_words(title: str, classifier: TextClassifier) -> str:
    """Return the title of a trained system, which tells whether words are added."""
    return f"{title}, with words" if classifier.uses_word_scores else title


def with_test_texts(config: RunConfig, corpus: Corpus, fraction: float) -> Corpus:
    """Return a corpus that has test texts, held out for it if it came without.

    The dev texts are then drawn anew from the rest, unless they have a file.
    """
    if corpus.test:
        return corpus
    data, given = config.data, config.data.dev is not None
    pool = list(corpus.train) if given else [*corpus.train, *corpus.dev]

    def split(
        texts: Sequence[Example], share: float
    ) -> tuple[list[Example], list[Example]]:
        groups = [example.labels for example in texts]
        kept, held = hold_out(groups, share, data.split_seed)
        return [texts[i] for i in kept], [texts[i] for i in held]

    if len(pool) < 10:
        raise DataError(
            f"{corpus.name} must have at least 10 texts to be split into train, dev "
            f"and test; got {len(pool)}. Add texts, or name files with --dev and "
            "--test."
        )
    pool, test = split(pool, fraction)
    if given:
        return corpus._replace(train=pool, test=test)
    texts, dev = split(pool, data.dev_fraction)
    return corpus._replace(train=texts, dev=dev, test=test)


def compare(
    config: RunConfig,
    corpus: Corpus,
    *,
    minutes: float = 10.0,
    began: float | None = None,
    encoder: str | None = None,
    folder: Path | None = None,
    watch: Watch | None = None,
) -> Comparison:
    """Train the rivals that fit into some minutes, and judge them on the test texts.

    Args:
        config: the options that all rivals share; the task must be settled.
        corpus: the texts, with test texts.
        minutes: the time for all of it.
        began: when that time began, as `time.monotonic` has it; by default now.
        encoder: a pretrained encoder for two further rivals.
        folder: where to keep the trained models, one folder per rival.
        watch: called with what is trained; returns a context that yields `on_step`,
            `on_epoch` and `on_encode`, as a progress bar needs them.
    """
    check_minutes(minutes)
    check_corpus(corpus)
    if config.train.task == "auto":
        config = config.replace(train={"task": corpus.task})
    began = time.monotonic() if began is None else began
    test = TestTexts(config, corpus)
    plan = TimePlan(began + 60 * minutes, test.seconds_of_draws(), corpus)
    rivals = list_rivals(config, encoder)
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as temporary:
        chosen, left_out = train_rivals(rivals, corpus, Path(temporary), plan, watch)
    judged = []
    for each in chosen:
        judged.append(test.judge(each.trained.classifier))
        if folder is not None:
            each.trained.classifier.save(folder / each.rival.name)
    several = config.train.task == "multi-label"
    on = test.all_name if several else "single"
    by = "exact_match" if several else "accuracy"
    return Comparison(
        rank(test, chosen, judged, on, by),
        left_out,
        on,
        by,
        {"train": len(corpus.train), "dev": len(corpus.dev), **test.sizes()},
        minutes,
        time.monotonic() - began,
    )


def rank(
    test: TestTexts,
    chosen: Sequence[Chosen],
    judged: Sequence[Judged],
    on: str,
    by: str,
) -> list[Result]:
    """Return all results, the best first; of equal ones the cheaper."""
    draws = test.figures(judged)
    scores = [each[on][by] for each in draws]  # (1 + draws,) each
    order = sorted(range(len(chosen)), key=lambda place: -scores[place][0])
    results = []
    for place in order:
        rival, trained, n_settings = chosen[place]
        measured = judged[place]
        results.append(
            Result(
                rival.name,
                with_words(rival.title, trained.classifier),
                trained.config,
                {
                    texts: {name: interval(values) for name, values in each.items()}
                    for texts, each in draws[place].items()
                },
                interval(scores[order[0]] - scores[place]),
                dev_score(trained.classifier),
                trained.seconds,
                measured.texts_per_second,
                n_settings,
                chosen[place].note,
                trained.epochs,
                trained.planned,
                measured.refused,
                measured.off_topic_refused,
            )
        )
    return results
