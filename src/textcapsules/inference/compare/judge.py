"""What trained rivals are worth: figures on the test texts, each with its interval.

The test texts are read once, when all rivals are trained. Intervals come from the
bootstrap over test texts: a joined text goes with the first of its two texts. All
rivals are judged on the same draws, so that a text that is hard for two of them does
not blur their difference.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import DataError
from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus
from textcapsules.data.off_topic import make_off_topic
from textcapsules.model.classifier import TextClassifier, encoder_states
from textcapsules.model.score import highest
from textcapsules.training.join import joined_pairs
from textcapsules.training.prepare import target_matrix

__all__ = ["Figure", "Judged", "TestTexts", "interval", "texts_per_second"]

N_DRAWS = 2000  # of the bootstrap
DRAWS_AT_ONCE = 100
FIRST_TEXTS = 32  # whose time tells on how many the speed is measured
TIMED_SECONDS = 2.0  # for measuring the speed, at most about so long
TIMED_TEXTS = 1000  # and on so many texts at most


class Figure(NamedTuple):
    """A measured value and its interval, which holds 95 % of the bootstrap's draws."""

    value: float
    low: float
    high: float


class Part(NamedTuple):
    """Some test texts, and which unit of the bootstrap each goes with."""

    texts: list[str]
    targets: NDArray[np.float32]  # (N, J)
    units: NDArray[np.int64]  # (N,)


class Judged(NamedTuple):
    """What a rival made of the test texts."""

    counts: dict[str, NDArray]  # by part, (N, 5): see `rates`
    texts_per_second: float
    refused: float  # share of the test texts that it takes for off-topic
    off_topic_refused: float  # the same of texts that are (`data.off_topic`)


class TestTexts:
    """The test texts: single ones, and with several labels their own or joined ones."""

    __test__ = False  # no class of tests

    def __init__(self, config: RunConfig, corpus: Corpus) -> None:
        texts = [example.text for example in corpus.test]
        targets = target_matrix(corpus.test, corpus.labels, "the test texts")
        counts = targets.sum(1)
        self.n_units, self.parts = len(texts), {}
        self.off_topic = [each.text for each in make_off_topic("held-out")]
        for name, rows in (("single", counts == 1), ("several", counts > 1)):
            places = np.flatnonzero(rows)
            if len(places):
                kept = [texts[place] for place in places.tolist()]
                self.parts[name] = Part(kept, targets[places], places)
        if "several" not in self.parts:
            seed = config.data.split_seed
            pairs = joined_pairs(targets, len(texts), seed)
            joined = [f"{texts[a]}\n{texts[b]}" for a, b in pairs.tolist()]
            both = np.maximum(targets[pairs[:, 0]], targets[pairs[:, 1]])
            if len(pairs):
                self.parts["joined"] = Part(joined, both, pairs[:, 0])
        if config.train.task == "single-label" and "single" not in self.parts:
            raise DataError(
                f"{corpus.name} must have test texts with one label for --task "
                "single-label; got none. Leave it out."
            )

    @property
    def all_name(self) -> str:
        """The name of all test texts together, as "single and joined"."""
        return " and ".join(self.parts)

    def sizes(self) -> dict[str, int]:
        """Return how many test texts of each kind there are."""
        return {name: len(part.texts) for name, part in self.parts.items()}

    def judge(self, classifier: TextClassifier) -> Judged:
        """Read the test texts once, and time some of them."""
        speed = texts_per_second(classifier, next(iter(self.parts.values())).texts)
        counts, refused = {}, []
        for name, part in self.parts.items():
            reading = classifier.read(part.texts)
            scores, outside = reading.scores, reading.outside
            refused.append(outside)
            truth = part.targets.astype(bool)
            given = classifier.decide(scores, multi_label=True, outside=outside)
            top = np.arange(scores.shape[1]) == highest(scores)[:, None]
            columns = [
                (top & truth).any(1),
                (given == truth).all(1),
                (given & truth).sum(1),
                given.sum(1) + truth.sum(1),
                np.ones(len(truth)),
            ]
            counts[name] = np.stack(columns, 1).astype(np.float64)  # (N, 5)
        ids, _ = classifier.encoder.cut_ids(self.off_topic)
        share = float(classifier.outside(ids).sum() / len(self.off_topic))
        return Judged(counts, speed, float(np.concatenate(refused).mean()), share)

    def draws(self) -> Iterator[NDArray]:
        """Yield how often each unit is drawn, (draws, units), the given set first."""
        yield np.ones((1, self.n_units))
        random, shares = np.random.default_rng(0), np.full(self.n_units, 1.0)
        shares /= shares.sum()
        for _ in range(0, N_DRAWS, DRAWS_AT_ONCE):
            yield random.multinomial(self.n_units, shares, DRAWS_AT_ONCE).astype(float)

    def seconds_of_draws(self) -> float:
        """Return about how long all draws take, from the time of the first ones."""
        draws = self.draws()
        next(draws)
        began = time.monotonic()
        next(draws)
        return (time.monotonic() - began) * N_DRAWS / DRAWS_AT_ONCE

    def figures(self, judged: Sequence[Judged]) -> list[dict[str, dict[str, NDArray]]]:
        """Return every figure of each rival: as measured, then of every draw."""
        names = {name: (name,) for name in self.parts}
        names[self.all_name] = tuple(self.parts)
        sums = [{name: [] for name in self.parts} for _ in judged]
        for drawn in self.draws():
            for each, kept in zip(judged, sums, strict=True):
                for name, part in self.parts.items():
                    kept[name].append(drawn[:, part.units] @ each.counts[name])
        results = []
        for kept in sums:
            whole = {name: np.concatenate(parts) for name, parts in kept.items()}
            results.append(
                {
                    name: rates(sum(whole[each] for each in members), name == "single")
                    for name, members in names.items()
                }
            )
        return results


def rates(sums: Any, with_accuracy: bool) -> dict[str, NDArray]:
    """Return the measures of summed counts, (draws, 5).

    The columns: highest label right, all labels right, labels given rightly, labels
    given and true ones together, texts.
    """
    texts = np.maximum(sums[:, 4], 1)
    measured = {
        "exact_match": sums[:, 1] / texts,
        "micro_f1": 2 * sums[:, 2] / np.maximum(sums[:, 3], 1),
    }
    return {"accuracy": sums[:, 0] / texts, **measured} if with_accuracy else measured


def interval(values: NDArray) -> Figure:
    """Return the first of some values, and what 95 % of the others lie between."""
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return Figure(float(values[0]), float(low), float(high))


def texts_per_second(classifier: TextClassifier, texts: Sequence[str]) -> float:
    """Return how many texts a second a model reads that it has not seen before."""

    def seconds(some: Sequence[str]) -> float:
        with uncached(classifier):
            began = time.perf_counter()
            classifier.read(some)
            return time.perf_counter() - began

    first = list(texts[:FIRST_TEXTS])
    seconds(first[:1])  # what is loaded at first use
    took = seconds(first)
    n = min(int(len(first) / took * TIMED_SECONDS), TIMED_TEXTS, len(texts))
    if n <= len(first):
        return len(first) / took
    return n / seconds(list(texts[:n]))


@contextmanager
def uncached(classifier: TextClassifier) -> Iterator[None]:
    """Let an encoder forget its sentences for a while: new texts are new to it."""
    states = encoder_states(classifier.network)
    if states is None:
        yield
        return
    before = states.cache, states.n_cached
    states.cache, states.n_cached = OrderedDict(), 0
    try:
        yield
    finally:
        states.cache, states.n_cached = before
