"""Keep a comparison within its minutes: what is trained, and for how long.

First round: every rival trains with its default setting, the cheap ones first. Each has
an equal part of the time that is left, so what one does not need goes to the others. A
system that needs no gradient tries all its settings at once, which takes seconds.

Second round: with the time that remains, a rival that was left out gets another chance,
a training that had to be shortened is repeated in full, and the other settings are
tried, each only if it fits.

How long a training takes is measured while it begins: by the pace of the encoder if it
has one, then by its first steps. Reading the test texts in the end counts too. If the
time does not suffice, the training begins again with fewer epochs, or is left out. One
that turns out slower still ends with its best epoch so far.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from textcapsules.base.errors import ConfigError
from textcapsules.config import CLASSIC, RunConfig
from textcapsules.data.example import Corpus
from textcapsules.inference.compare.judge import texts_per_second
from textcapsules.inference.compare.rivals import Rival, dev_score
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.loop import Step
from textcapsules.training.run import OnEncode, OnEpoch, OnStep, train

__all__ = ["Chosen", "TimePlan", "Watch", "train_rivals"]

MIN_EPOCHS = 3  # a network that cannot have these is left out
FIRST_STEPS = 3  # not timed: they compile and fill caches
TIMED_STEPS = 15
ENCODED_SECONDS = 2.0  # of encoding, after which its pace is known
MARGIN = 1.1  # what trainings take longer than their first steps tell
SAFETY = 1.25  # the same of a training in the second round, which nothing needs
SPARE = 0.03  # share of the time for what cannot be foreseen, as other programs
FEWEST_SECONDS = 1.0  # less than it takes to begin
PACE_TEXTS = 32  # dev texts that tell how fast new texts are read

Watch = Callable[[str], AbstractContextManager[dict[str, Any]]]


class TooLongError(Exception):
    """Raised in a training that its time does not allow; says why."""

    def __init__(self, reason: str, seconds: float = float("inf")) -> None:
        super().__init__(reason)
        self.seconds = seconds  # that it would need


class ShorterError(Exception):
    """Raised in a training that must begin again with fewer epochs."""

    def __init__(self, epochs: int, planned: int) -> None:
        super().__init__(f"{epochs} epochs of {planned}")
        self.epochs, self.planned = epochs, planned


class Trained(NamedTuple):
    """A training of one setting."""

    classifier: TextClassifier
    config: RunConfig  # as it was asked for, with all its epochs
    seconds: float
    epochs: int
    planned: int  # epochs that it should have had

    @property
    def is_short(self) -> bool:
        """Whether it had fewer epochs than it should have."""
        return self.epochs < self.planned

    def seconds_for(self, config: RunConfig) -> float:
        """Return about how long another setting takes, with all its epochs."""

        def work(each: RunConfig) -> float:  # a joined text is as long as two
            return 1 + 2 * each.train.joined

        whole = self.seconds * self.planned / self.epochs
        return whole * work(config) / work(self.config)


class Chosen(NamedTuple):
    """A rival with the setting that was best on dev."""

    rival: Rival
    trained: Trained
    n_settings: int  # that were tried

    @property
    def note(self) -> str:
        """What the time did not allow; empty if nothing."""
        notes, each = [], self.trained
        if each.is_short:
            notes.append(f"{each.epochs} epochs in place of {each.planned}")
        missed = len(self.rival.settings) - self.n_settings
        if missed:
            notes.append(f"{missed} of {len(self.rival.settings)} settings not tried")
        return "; ".join(notes)


class TimePlan:
    """The time of a comparison, less what its end will need.

    Args:
        end: when it is over, as `time.monotonic` has it.
        last: seconds for what comes after the last rival is judged.
        corpus: the texts to train on, to choose on and to judge on.
    """

    def __init__(self, end: float, last: float, corpus: Corpus) -> None:
        self.end, self.judging = end, {}
        self.last = last + SPARE * max(end - time.monotonic(), 0)
        train, dev, test = map(len, (corpus.train, corpus.dev, corpus.test))
        self.dev_share = dev / max(train, 1)
        self.test_share = test / max(train, 1)
        self.test_by_dev, self.n_test = test / max(dev, 1), test
        self.dev_texts = [each.text for each in corpus.dev[:PACE_TEXTS]]

    def left(self) -> float:
        """Return the seconds that trainings may still take."""
        reserved = self.last + sum(self.judging.values())
        return self.end - reserved - time.monotonic()

    def reserve(self, name: str, trained: Trained) -> None:
        """Set aside the time for judging a rival, as its dev texts tell it."""
        seconds = trained.classifier.record["epochs"][-1]["dev_seconds"]
        seconds *= self.test_by_dev
        if trained.config.text.encoder is not None:  # had the dev texts in memory
            pace = texts_per_second(trained.classifier, self.dev_texts)
            seconds += self.n_test / pace
        self.judging[name] = max(MARGIN * seconds, self.judging.get(name, 0.0))


class Clock:
    """Times the beginning of a training, and ends it when its time is over."""

    def __init__(
        self,
        end: float,
        *,
        dev_share: float = 0.0,
        test_share: float = 0.0,
        may_be_shorter: bool = True,
        is_checked: bool = False,
        on_step: OnStep | None = None,
        on_encode: OnEncode | None = None,
    ) -> None:
        """Begin.

        Args:
            end: when the time is over, as `time.monotonic` has it.
            dev_share: number of dev texts, relative to the training texts.
            test_share: the same of the test texts, which are read in the end.
            may_be_shorter: it may have fewer epochs.
            is_checked: the cost is known to fit.
            on_step: called after every step.
            on_encode: called while an encoder reads the texts.
        """
        self.end, self.on_step, self.forward = end, on_step, on_encode
        self.dev_share, self.test_share = dev_share, test_share
        self.may_be_shorter, self.is_checked = may_be_shorter, is_checked
        self.ended, self.steps, self.begun = False, 0, 0.0
        self.encoding_began, self.n_before = 0.0, 0
        self.reading = 0.0  # seconds that the encoder will need for the test texts
        self.epoch_began = time.monotonic()

    def on_encode(self, done: int, total: int) -> None:
        """See from the encoder's pace whether it can read all texts in time."""
        if self.forward is not None:
            self.forward(done, total)
        now = self.epoch_began = time.monotonic()
        if not self.n_before:  # stored states may be among the first
            self.encoding_began, self.n_before = now, done
            return
        took = now - self.encoding_began
        pace = took / (done - self.n_before)  # seconds per piece
        share = self.test_share / (1 + self.dev_share)
        self.reading = pace * total * share
        needed, left = pace * (total - done) + self.reading, self.end - now
        if took > ENCODED_SECONDS and needed > left and not self.is_checked:
            raise TooLongError(
                f"its encoder would need about {needed:,.0f} s more to read the texts, "
                f"and {max(left, 0):,.0f} s were left for it",
                pace * total + self.reading,
            )

    def after_step(self, step: Step) -> None:
        """Count a step; once enough are timed, see whether all of them fit."""
        if self.on_step is not None:
            self.on_step(step)
        if self.is_checked or step.stage != "epoch":
            return
        self.steps += 1
        now = time.monotonic()
        if self.steps == 1:
            self.epoch_began = now  # an epoch without what comes once
        if self.steps == FIRST_STEPS:
            self.begun = now
        elif self.steps == FIRST_STEPS + TIMED_STEPS:
            self.is_checked = True
            timed = (now - self.begun) / TIMED_STEPS
            self.expect(timed * step.n_steps, step)

    def expect(self, epoch: float, step: Step) -> None:
        """Refuse a training, or shorten it, if it takes too long.

        Reading a text takes a third of the time of training on it. Beside each text one
        that is joined of two is read, so reading costs as much as training.

        Args:
            epoch: seconds of the steps of one epoch.
            step: the last step.
        """
        left = self.end - time.monotonic()
        whole = MARGIN * epoch * (1 + self.dev_share)
        once = self.reading + MARGIN * epoch * (self.dev_share + self.test_share)
        done = step.epoch + (step.step + 1) / step.n_steps
        if whole * (step.n_epochs - done) + once <= left:
            return
        fitting = int((left - once) / whole)
        if not self.may_be_shorter or fitting < MIN_EPOCHS:
            n_epochs = MIN_EPOCHS if self.may_be_shorter else step.n_epochs
            seconds = whole * n_epochs + once
            raise TooLongError(
                f"{n_epochs} epochs would take about {seconds:,.0f} s more, and "
                f"{max(left, 0):,.0f} s were left for it",
                seconds,
            )
        raise ShorterError(min(fitting, step.n_epochs), step.n_epochs)

    def is_over(self) -> bool:
        """Tell after an epoch whether another one would end too late."""
        now = time.monotonic()
        took, self.epoch_began = now - self.epoch_began, now
        once = self.reading + took * (self.dev_share + self.test_share)
        self.ended = now + took + once > self.end
        return self.ended


def train_rivals(
    rivals: Sequence[Rival],
    corpus: Corpus,
    folder: Path,
    plan: TimePlan,
    watch: Watch | None = None,
) -> tuple[list[Chosen], dict[str, str]]:
    """Train what fits; return the rivals, and by title why others are left out."""
    tried: dict[str, list[Trained]] = {}
    left_out: dict[str, TooLongError] = {}

    def attempt(rival: Rival, place: int, seconds: float, **options: bool) -> None:
        title = f"{rival.title}, setting {place + 1} of {len(rival.settings)}"
        before = len(tried.get(rival.name, ()))
        home = folder / rival.name / str(before)
        with nullcontext({}) if watch is None else watch(title) as bars:
            trained = train_for(
                rival.settings[place], corpus, home, seconds, plan, **options, **bars
            )
        tried.setdefault(rival.name, []).append(trained)
        plan.reserve(rival.name, trained)

    for place, rival in enumerate(rivals):
        end = time.monotonic() + plan.left() / (len(rivals) - place)
        try:
            attempt(rival, 0, end - time.monotonic())
        except TooLongError as error:
            left_out[rival.title] = error
            continue
        if is_classic(rival):
            for other in range(1, len(rival.settings)):
                needed = seconds_for(rival, other, tried[rival.name])
                if needed <= end - time.monotonic():
                    attempt(rival, other, needed)
    for rival in rivals:
        error = left_out.get(rival.title)
        # The machine may be faster now, and to find out costs only spare time.
        if error is not None and error.seconds / 2 <= plan.left():
            try:
                attempt(rival, 0, plan.left())
                del left_out[rival.title]
            except TooLongError as again:
                left_out[rival.title] = again
    for rival in rivals:
        if rival.name not in tried or is_classic(rival):
            continue
        is_short = tried[rival.name][0].is_short
        for place in range(0 if is_short else 1, len(rival.settings)):
            left = plan.left()
            if SAFETY * seconds_for(rival, place, tried[rival.name]) > left:
                continue
            try:
                attempt(rival, place, left, may_be_shorter=False)
            except TooLongError:
                continue
    chosen = [choose(each, tried[each.name]) for each in rivals if each.name in tried]
    return chosen, {title: str(error) for title, error in left_out.items()}


def is_classic(rival: Rival) -> bool:
    """Tell whether a rival is fitted in one pass, without gradients."""
    return rival.settings[0].model.architecture in CLASSIC


def seconds_for(rival: Rival, place: int, tried: Sequence[Trained]) -> float:
    """Return about how long a setting takes, by the slowest that was tried."""
    return max(each.seconds_for(rival.settings[place]) for each in tried)


def choose(rival: Rival, tried: Sequence[Trained]) -> Chosen:
    """Return the training that is best on dev; one in full replaces the shortened."""
    by_setting = {each.config: each for each in tried}  # the later one counts
    best = max(by_setting.values(), key=lambda each: dev_score(each.classifier))
    return Chosen(rival, best, len(by_setting))


def train_for(
    config: RunConfig,
    corpus: Corpus,
    folder: Path,
    seconds: float,
    plan: TimePlan,
    *,
    may_be_shorter: bool = True,
    on_step: OnStep | None = None,
    on_epoch: OnEpoch | None = None,
    on_encode: OnEncode | None = None,
) -> Trained:
    """Train one setting for some seconds at most.

    A system that needs no gradient is trained in any case.
    """
    began = time.monotonic()
    if config.model.architecture in CLASSIC:
        model = train(config, folder, corpus=corpus, overwrite=True, on_epoch=on_epoch)
        return Trained(model, config, time.monotonic() - began, 1, 1)
    if seconds < FEWEST_SECONDS:
        raise TooLongError("no time was left for it")

    def run(config: RunConfig, is_checked: bool) -> tuple[TextClassifier, Clock]:
        clock = Clock(
            began + seconds,
            dev_share=plan.dev_share,
            test_share=plan.test_share,
            may_be_shorter=may_be_shorter,
            is_checked=is_checked,
            on_step=on_step,
            on_encode=on_encode,
        )
        model = train(
            config,
            folder,
            corpus=corpus,
            overwrite=True,  # what a shorter or an interrupted training left
            on_step=clock.after_step,
            on_epoch=on_epoch,
            on_encode=clock.on_encode,
            stop=clock.is_over,
            test_reasons=False,
        )
        return model, clock

    try:
        model, clock = run(config, False)
    except ShorterError as shorter:
        planned, anew = shorter.planned, time.monotonic()
        model, _ = run(config.replace(train={"epochs": shorter.epochs}), True)
        took = time.monotonic() - anew
        return Trained(model, config, took, len(model.record["epochs"]), planned)
    epochs = len(model.record["epochs"])
    planned = model.config.train.epochs if clock.ended else epochs
    return Trained(model, config, time.monotonic() - began, epochs, planned or epochs)


def check_minutes(minutes: float) -> None:
    """Refuse a time that is none."""
    if not 0 < minutes < float("inf"):
        raise ConfigError(f"minutes must be above 0; got {minutes:g}.")
