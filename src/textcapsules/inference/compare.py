"""Rivals on the same texts: which system is best for them, and is that clear?

Every rival trains on the same texts, is chosen on the same dev texts and gets its
thresholds there, by one rule. The test texts are read once, at the end. Intervals come
from the bootstrap over test texts: a joined text goes with the first of its two texts.
The difference of two rivals is taken on the same draws, so that a text that is hard for
both does not blur it.

The time is shared: each rival has an equal part of what is left, the cheap ones first.
The first steps of a network tell how long it will take. If that is too long, it trains
for fewer epochs, or is left out; one that overruns ends with its best epoch so far.
"""

import importlib.util
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.config import CLASSIC, RunConfig, default_preset, preset
from textcapsules.data.example import Corpus, Example
from textcapsules.data.off_topic import make_off_topic
from textcapsules.data.split import hold_out
from textcapsules.model.classifier import TextClassifier, encoder_states
from textcapsules.model.score import highest
from textcapsules.text.encoder_files import PACKAGES
from textcapsules.training.join import joined_pairs
from textcapsules.training.loop import Step
from textcapsules.training.prepare import target_matrix
from textcapsules.training.run import OnEncode, OnEpoch, OnStep, train

__all__ = [
    "Comparison",
    "Figure",
    "Result",
    "Rival",
    "best_on_dev",
    "compare",
    "installed_encoder",
    "linear_rival",
    "list_rivals",
    "with_test_texts",
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
MIN_EPOCHS = 3  # a network that cannot have these is left out
FIRST_STEPS = 3  # not timed: they compile and fill caches
TIMED_STEPS = 15
MARGIN = 1.15  # dev and checkpoints, on top of the steps
N_DRAWS = 2000  # of the bootstrap
DRAWS_AT_ONCE = 100
TIMED_TEXTS = 1000  # on which the speed of prediction is measured

Watch = Callable[[str], AbstractContextManager[dict[str, Any]]]


class Rival(NamedTuple):
    """A system to compare, and the settings among which dev chooses."""

    name: str
    title: str
    settings: Sequence[RunConfig]  # the default first


class Figure(NamedTuple):
    """A measured value and its interval, which holds 95 % of the bootstrap's draws."""

    value: float
    low: float
    high: float


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
    cut_short: bool = False  # whether it had fewer epochs than it should have
    refused: float = 0.0  # share of the test texts that it takes for off-topic
    off_topic_refused: float = 0.0  # the same of texts that are (`data.off_topic`)


class Comparison(NamedTuple):
    """All results, the best first."""

    results: list[Result]
    left_out: dict[str, str]  # by title: why
    judged_on: str  # texts by which the best is best
    judged_by: str  # and the measure
    texts: dict[str, int]  # train, dev and the kinds of test texts
    seconds: float

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
        short = [each.title for each in self.results[1:] if each.cut_short]
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


def installed_encoder() -> str | None:
    """Return the pretrained encoder that needs no download, if it is installed."""
    if importlib.util.find_spec("transformers") is None:
        return None
    for name, package in PACKAGES.items():
        if importlib.util.find_spec(package.module) is not None:
            return name
    return None


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
    name, base = Path(encoder).name, on_encoder(config, encoder)
    if not several:
        base = base.replace(train={"joined": 0.0})
    layer = base.replace(model={"architecture": "encoder-linear"})
    layers = [layer.replace(train={"learning_rate": rate}) for rate in LINEAR_RATES]
    return [
        *rivals,
        Rival("encoder-linear", f"linear on {name}", layers),
        Rival("encoder-capsules", f"capsules on {name}", [base]),
    ]


def on_encoder(config: RunConfig, encoder: str) -> RunConfig:
    """Return what a run changes in its preset, on the preset of encoders."""
    before, now = preset(config.preset).to_dict(), config.to_dict()
    changes = {
        section: {
            key: value for key, value in values.items() if value != before[section][key]
        }
        for section, values in now.items()
        if section != "preset"
    }
    base = preset(default_preset(encoder)).replace(**changes)
    return base.replace(text={"encoder": encoder, "vectors": None})


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
    encoder: str | None = None,
    folder: Path | None = None,
    watch: Watch | None = None,
) -> Comparison:
    """Train the rivals that fit into some minutes, and judge them on the test texts.

    Args:
        config: the options that all rivals share; the task must be settled.
        corpus: the texts, with test texts.
        minutes: the time for all of it.
        encoder: a pretrained encoder for two further rivals.
        folder: where to keep the trained models, one folder per rival.
        watch: called with what is trained; returns a context that yields `on_step` and
            `on_epoch`, as a progress bar needs them.
    """
    if not minutes > 0:
        raise ConfigError(f"minutes must be above 0; got {minutes:g}.")
    if config.train.task == "auto":
        config = config.replace(train={"task": corpus.task})
    started = time.monotonic()
    rivals = list_rivals(config, encoder)
    test, trained, left_out = TestTexts(config, corpus), [], {}
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as temporary:
        for place, rival in enumerate(rivals):
            left = started + 60 * minutes - time.monotonic()
            share = left / (len(rivals) - place)
            home = Path(temporary) / rival.name
            try:
                chosen = train_within(rival, corpus, home, share, watch)
            except TooLongError as error:
                left_out[rival.title] = error.reason
                continue
            trained.append((rival, chosen, test.judge(chosen.classifier)))
            if folder is not None:
                chosen.classifier.save(folder / rival.name)
    several = config.train.task == "multi-label"
    on = test.all_name if several else "single"
    by = "exact_match" if several else "accuracy"
    return Comparison(
        rank(test, trained, on, by),
        left_out,
        on,
        by,
        {"train": len(corpus.train), "dev": len(corpus.dev), **test.sizes()},
        time.monotonic() - started,
    )


class TooLongError(Exception):
    """A training that its time does not allow."""

    def __init__(self, seconds: float | None = None, left: float = 0.0) -> None:
        super().__init__(f"{seconds} s")
        self.seconds = seconds  # of the shortest training; None if no time is left
        self.left = left  # when that was known

    @property
    def reason(self) -> str:
        """Why the rival is left out."""
        if self.seconds is None:
            return "no time was left for it"
        return (
            f"its shortest training would take about {self.seconds:,.0f} s more, and "
            f"{self.left:,.0f} s were left for it"
        )


class Chosen(NamedTuple):
    """A trained rival."""

    classifier: TextClassifier
    config: RunConfig  # as it was asked for, with all its epochs
    seconds: float
    n_settings: int
    note: str
    cut_short: bool = False


def train_within(
    rival: Rival, corpus: Corpus, folder: Path, seconds: float, watch: Watch | None
) -> Chosen:
    """Train with as many settings as the time allows; return the best on dev.

    The first setting of a system that needs no gradient is trained in any case.
    """
    end, tried, longest = time.monotonic() + seconds, [], 0.0
    for place, config in enumerate(rival.settings):
        left = end - time.monotonic()
        if tried and longest > left:
            break
        title = f"{rival.title}, setting {place + 1} of {len(rival.settings)}"
        began = time.monotonic()
        try:
            with nullcontext({}) if watch is None else watch(title) as bars:
                home = folder / str(place)
                classifier, note = train_for(config, corpus, home, left, **bars)
        except TooLongError:
            if not tried:
                raise
            break
        took = time.monotonic() - began
        longest = max(longest, took)
        tried.append(Chosen(classifier, config, took, 0, note, bool(note)))
    best = max(tried, key=lambda each: dev_score(each.classifier))
    missed = len(rival.settings) - len(tried)
    notes = [best.note] if best.note else []
    if missed:
        notes.append(f"{missed} of {len(rival.settings)} settings not tried")
    return best._replace(n_settings=len(tried), note="; ".join(notes))


def train_for(
    config: RunConfig,
    corpus: Corpus,
    folder: Path,
    seconds: float,
    on_step: OnStep | None = None,
    on_epoch: OnEpoch | None = None,
    on_encode: OnEncode | None = None,
) -> tuple[TextClassifier, str]:
    """Train for some seconds at most; return the model, and what was cut short."""
    if config.model.architecture in CLASSIC:
        return train(config, folder, corpus=corpus, on_epoch=on_epoch), ""
    if seconds < 1:  # less than it takes to begin
        raise TooLongError
    end, note = time.monotonic() + seconds, ""
    clock = Clock(end, encodes=config.text.encoder is not None, on_step=on_step)
    try:
        model = train(
            config,
            folder,
            corpus=corpus,
            on_step=clock.after_step,
            on_epoch=on_epoch,
            on_encode=on_encode,
            stop=clock.is_over,
            test_reasons=False,
        )
    except ShorterError as shorter:
        note = f"{shorter.epochs} epochs in place of {shorter.planned}"
        clock = Clock(end, on_step=on_step, is_checked=True)
        model = train(
            config.replace(train={"epochs": shorter.epochs}),
            folder,
            corpus=corpus,
            overwrite=True,
            on_step=clock.after_step,
            on_epoch=on_epoch,
            on_encode=on_encode,
            stop=clock.is_over,
            test_reasons=False,
        )
    if clock.ended:
        note = f"stopped after {len(model.record['epochs'])} epochs"
    return model, note


class ShorterError(Exception):
    """Raised inside a training that must begin again with fewer epochs."""

    def __init__(self, epochs: int, planned: int) -> None:
        super().__init__(f"{epochs} epochs of {planned}")
        self.epochs, self.planned = epochs, planned


class Clock:
    """Times a training's first steps, and ends it when its time is over."""

    def __init__(
        self,
        end: float,
        *,
        encodes: bool = False,
        on_step: OnStep | None = None,
        is_checked: bool = False,
    ) -> None:
        """Begin.

        Args:
            end: when the time is over, as `time.monotonic` has it.
            encodes: the first epoch takes longer than the others, since it fills a
                cache; the steps of the second tell the cost.
            on_step: called after every step.
            is_checked: the cost is known to fit.
        """
        self.end, self.encodes, self.on_step = end, encodes, on_step
        self.is_checked, self.ended = is_checked, False
        self.steps, self.begun, self.epoch_began = 0, 0.0, time.monotonic()

    def after_step(self, step: Step) -> None:
        """Count a step; once enough are timed, see whether all of them fit."""
        if self.on_step is not None:
            self.on_step(step)
        if self.is_checked:
            return
        self.steps += 1
        if self.steps == FIRST_STEPS:
            self.begun = time.monotonic()
        elif self.steps == FIRST_STEPS + TIMED_STEPS:
            epoch = (time.monotonic() - self.begun) / TIMED_STEPS * step.n_steps
            if self.encodes and step.epoch == 0:
                self.expect(epoch, 1, 1)
                # Again in the next epoch, from its first step on.
                self.steps = step.step + 1 - step.n_steps
                self.encodes = False
            else:
                self.is_checked = True
                self.expect(MARGIN * epoch, step.n_epochs, MIN_EPOCHS)

    def expect(self, epoch: float, n_epochs: int, fewest: int) -> None:
        """Refuse a training, or shorten it, if its epochs take too long."""
        left = self.end - time.monotonic()
        if n_epochs * epoch <= left:
            return
        fitting = int(left / epoch)
        if fitting < fewest:
            raise TooLongError(epoch * fewest, left)
        raise ShorterError(fitting, n_epochs)

    def is_over(self) -> bool:
        """Tell after an epoch whether another one would end too late."""
        now = time.monotonic()
        took, self.epoch_began = now - self.epoch_began, now
        self.ended = now + took > self.end
        return self.ended


class Part(NamedTuple):
    """Some test texts, and which unit of the bootstrap each goes with."""

    texts: list[str]
    targets: NDArray[np.float32]  # (N, J)
    units: NDArray[np.int64]  # (N,)


class TestTexts:
    """The test texts: single ones, and with several labels their own or joined ones."""

    __test__ = False  # no class of tests

    def __init__(self, config: RunConfig, corpus: Corpus) -> None:
        texts = [example.text for example in corpus.test]
        targets = target_matrix(corpus.test, corpus.labels, "the test texts")
        counts = targets.sum(1)
        self.n_units, self.parts = len(texts), {}
        self.dev_text = corpus.dev[0].text
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

    def judge(self, classifier: TextClassifier) -> "Judged":
        """Read the test texts once, and time some of them."""
        first = next(iter(self.parts.values())).texts[:TIMED_TEXTS]
        with uncached(classifier):
            classifier.read([self.dev_text])  # what is loaded at first use
            began = time.perf_counter()
            classifier.read(first)
            speed = len(first) / (time.perf_counter() - began)
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
        off_topic = classifier.outside(ids).sum() / len(self.off_topic)
        return Judged(counts, speed, np.concatenate(refused).mean(), off_topic)

    def draws(self) -> Iterator[NDArray]:
        """Yield how often each unit is drawn, (draws, units), the given set first."""
        yield np.ones((1, self.n_units))
        random, shares = np.random.default_rng(0), np.full(self.n_units, 1.0)
        shares /= shares.sum()
        for _ in range(0, N_DRAWS, DRAWS_AT_ONCE):
            yield random.multinomial(self.n_units, shares, DRAWS_AT_ONCE).astype(float)

    def figures(self, judged: "Judged") -> dict[str, dict[str, NDArray]]:
        """Return every figure: as measured, then of every draw."""
        names = {name: (name,) for name in self.parts}
        names[self.all_name] = tuple(self.parts)
        sums: dict[str, list[NDArray]] = {name: [] for name in self.parts}
        for drawn in self.draws():
            for name, part in self.parts.items():
                sums[name].append(drawn[:, part.units] @ judged.counts[name])
        whole = {name: np.concatenate(each) for name, each in sums.items()}
        return {
            name: rates(sum(whole[each] for each in members), name == "single")
            for name, members in names.items()
        }


class Judged(NamedTuple):
    """What a rival made of the test texts."""

    counts: dict[str, NDArray]  # by part, (N, 5): see `rates`
    texts_per_second: float
    refused: float
    off_topic_refused: float


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


def rank(
    test: TestTexts,
    trained: Sequence[tuple[Rival, Chosen, Judged]],
    on: str,
    by: str,
) -> list[Result]:
    """Return all results, the best first; of equal ones the cheaper."""
    draws = [test.figures(judged) for _, _, judged in trained]
    scores = [each[on][by] for each in draws]  # (1 + draws,) each
    order = sorted(range(len(trained)), key=lambda place: -scores[place][0])
    results = []
    for place in order:
        rival, chosen, judged = trained[place]
        results.append(
            Result(
                rival.name,
                rival.title,
                chosen.config,
                {
                    texts: {name: interval(values) for name, values in each.items()}
                    for texts, each in draws[place].items()
                },
                interval(scores[order[0]] - scores[place]),
                dev_score(chosen.classifier),
                chosen.seconds,
                judged.texts_per_second,
                chosen.n_settings,
                chosen.note,
                chosen.cut_short,
                judged.refused,
                judged.off_topic_refused,
            )
        )
    return results


def interval(values: NDArray) -> Figure:
    """Return the first of some values, and what 95 % of the others lie between."""
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return Figure(float(values[0]), float(low), float(high))


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
