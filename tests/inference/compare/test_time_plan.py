"""A comparison keeps its minutes: who is trained, for how long, and who is not."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from comparisons import tiny, toy_corpus, two_rivals
from textcapsules.config import RunConfig
from textcapsules.inference.compare import time_plan as module
from textcapsules.inference.compare.rivals import Rival
from textcapsules.inference.compare.time_plan import (
    Clock,
    ShorterError,
    TimePlan,
    TooLongError,
    Trained,
    train_for,
    train_rivals,
)
from textcapsules.model.classifier import TextClassifier
from textcapsules.training.loop import Step


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a clock that stands still unless it is set."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    return clock


def run_steps(clock: Clock, now: list[float], n: int, seconds: float, **facts) -> None:
    for step in range(n):
        now[0] += seconds
        clock.after_step(Step(facts.get("epoch", 0), step, 10, 100, 0.5))


def test_training_that_fits_is_left_alone(now) -> None:
    run_steps(Clock(1200.0), now, 100, 1.0)  # 10 epochs of 100 s, and a margin


def test_steps_before_the_first_epoch_are_not_timed(now) -> None:
    clock = Clock(600.0)
    for step in range(100):
        now[0] += 1.0
        clock.after_step(Step(0, step, 1, 100, 0.5, stage="contrastive warm-up"))
    run_steps(clock, now, 100, 0.1)  # 10 epochs of 10 s fit


def test_training_that_takes_too_long_is_shortened(now) -> None:
    with pytest.raises(ShorterError) as shorter:
        run_steps(Clock(600.0), now, 100, 1.0)
    # After 18 s, five epochs of 110 s fit into the rest.
    assert (shorter.value.epochs, shorter.value.planned) == (5, 10)


def test_dev_and_test_texts_take_time_too(now) -> None:
    with pytest.raises(ShorterError) as shorter:
        run_steps(Clock(600.0, dev_share=0.1, test_share=0.5), now, 100, 1.0)
    # 66 s for the end; epochs of 121 s.
    assert shorter.value.epochs == 4


def test_training_that_cannot_be_shortened_is_refused(now) -> None:
    with pytest.raises(TooLongError, match="3 epochs would take about 330 s more, and"):
        run_steps(Clock(300.0), now, 100, 1.0)
    clock = Clock(now[0] + 600.0, may_be_shorter=False)
    with pytest.raises(TooLongError, match="10 epochs would take about 1,100 s more"):
        run_steps(clock, now, 100, 1.0)


def test_encoder_that_takes_too_long_is_refused_by_its_pace(now) -> None:
    clock = Clock(100.0, test_share=0.2)
    clock.on_encode(1000, 10_000)  # from the disk, in no time
    now[0] = 1.5
    clock.on_encode(1050, 10_000)
    now[0] = 3.0
    # Ten pieces take 0.3 s: the other 8,900 need 267 s, and a fifth of all 60 s.
    with pytest.raises(TooLongError, match=r"need about 327 s more .* and 97 s were"):
        clock.on_encode(1100, 10_000)
    enough = Clock(now[0] + 330, test_share=0.2)
    enough.on_encode(1000, 10_000)
    now[0] += 3.0
    enough.on_encode(1100, 10_000)
    assert enough.reading == pytest.approx(60)


def test_training_ends_before_an_epoch_that_would_end_too_late(now) -> None:
    clock = Clock(250.0, is_checked=True)
    now[0] = 100.0
    assert not clock.is_over()
    now[0] = 200.0
    assert clock.is_over()
    assert clock.ended


def test_network_that_overruns_keeps_its_best_epoch(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(
        Clock, "is_over", lambda self: setattr(self, "ended", True) or True
    )
    config = tiny(model={"architecture": "cnn"}, train={"epochs": 5})
    plan = TimePlan(1e9, 0.0, toy_corpus())
    trained = module.train_for(config, toy_corpus(), tmp_path / "m", 60.0, plan)
    assert (trained.epochs, trained.planned, trained.is_short) == (1, 5, True)
    assert len(trained.classifier.record["epochs"]) == 1
    assert TextClassifier.load(tmp_path / "m").record["finished"]


class Fake:
    """Trainings that take no time but that of the clock."""

    def __init__(self, now: list[float], costs: dict[str, float]) -> None:
        self.now, self.costs, self.log = now, costs, []

    def train(
        self,
        config: RunConfig,
        corpus: Any,
        folder: Any,
        seconds: float,
        plan: TimePlan,
        may_be_shorter: bool = True,
    ) -> Trained:
        name = config.model.architecture
        whole = self.costs[name] * (1 + 2 * config.train.joined)
        share = min(1.0, seconds / whole)
        epochs = int(10 * share)
        if name != "tfidf-svm" and (epochs < 3 or (epochs < 10 and not may_be_shorter)):
            raise TooLongError("too long", 0.3 * whole)
        self.now[0] += whole * epochs / 10
        self.log.append((name, config.train.joined, epochs))
        record = {"epochs": [{"dev_seconds": 0.5, "dev_score": 0.5}], "best_epoch": 1}
        model: Any = SimpleNamespace(record=record)
        return Trained(model, config, whole * epochs / 10, epochs, 10)


def run_plan(
    now: list[float],
    monkeypatch: pytest.MonkeyPatch,
    costs: dict[str, float],
    seconds: float,
    rivals: Sequence[Rival],
) -> tuple[Any, Any, dict[str, str]]:
    fake = Fake(now, costs)
    monkeypatch.setattr(module, "train_for", fake.train)
    plan = TimePlan(now[0] + seconds, 1.0, toy_corpus())
    chosen, left_out = train_rivals(rivals, toy_corpus(), Path("x"), plan)
    return fake.log, chosen, left_out


def three_rivals() -> list[Rival]:
    config = tiny()
    capsules = [
        config.replace(model={"architecture": "capsule-b"}, train={"joined": joined})
        for joined in (0.0, 1.0)
    ]
    return [*two_rivals(config), Rival("capsules", "capsules", capsules)]


def test_defaults_come_first_and_other_settings_if_they_fit(now, monkeypatch) -> None:
    costs = {"tfidf-svm": 1.0, "cnn": 10.0, "capsule-b": 30.0}
    log, chosen, left_out = run_plan(now, monkeypatch, costs, 100.0, three_rivals())
    whole = [("tfidf-svm", 0.0, 10), ("cnn", 0.0, 10), ("capsule-b", 0.0, 10)]
    assert log == [*whole, ("cnn", 1.0, 10)]  # 90 s for joined capsules are not left
    assert left_out == {}
    assert [each.note for each in chosen] == ["", "", "1 of 2 settings not tried"]
    assert now[0] <= 100


def test_shortened_training_is_repeated_if_time_remains(now, monkeypatch) -> None:
    # The CNN's part is 32 s; those after it need less than theirs.
    costs = {"tfidf-svm": 1.0, "cnn": 36.0, "capsule-b": 12.0, "lstm": 5.0}
    lstm = tiny(model={"architecture": "lstm"})
    rivals = [*three_rivals(), Rival("lstm", "LSTM", [lstm])]
    log, chosen, _ = run_plan(now, monkeypatch, costs, 100.0, rivals)
    assert log[1:3] == [("cnn", 0.0, 8), ("capsule-b", 0.0, 10)]
    assert log[3:] == [("lstm", 0.0, 10), ("cnn", 0.0, 10)]
    assert not chosen[1].trained.is_short
    assert chosen[1].n_settings == 1
    assert now[0] <= 100


def test_who_was_left_out_has_another_chance(now, monkeypatch) -> None:
    # A quarter of 100 s is too little for the CNN, but the others leave it half.
    costs = {"tfidf-svm": 1.0, "cnn": 120.0, "capsule-b": 10.0, "lstm": 10.0}
    lstm = tiny(model={"architecture": "lstm"})
    rivals = [*three_rivals(), Rival("lstm", "LSTM", [lstm])]
    log, chosen, left_out = run_plan(now, monkeypatch, costs, 100.0, rivals)
    assert log[1:4] == [("capsule-b", 0.0, 10), ("lstm", 0.0, 10), ("cnn", 0.0, 6)]
    assert left_out == {}
    assert chosen[1].note == "6 epochs in place of 10; 1 of 2 settings not tried"
    assert now[0] <= 100


def test_what_does_not_fit_is_left_out_and_the_time_is_kept(now, monkeypatch) -> None:
    costs = {"tfidf-svm": 1.0, "cnn": 50.0, "capsule-b": 1000.0}
    log, chosen, left_out = run_plan(now, monkeypatch, costs, 60.0, three_rivals())
    assert left_out == {"capsules": "too long"}
    assert chosen[1].note == "5 epochs in place of 10; 1 of 2 settings not tried"
    assert log[1:] == [("cnn", 0.0, 5)]
    assert now[0] <= 60


def test_a_second_chance_replaces_what_the_first_one_left(tmp_path: Path) -> None:
    plan = TimePlan(module.time.monotonic() + 1000, 1.0, toy_corpus())
    for rival in two_rivals(tiny()):
        for _ in range(2):
            trained = train_for(
                rival.settings[0], toy_corpus(), tmp_path / rival.name, 500.0, plan
            )
            assert trained.classifier.labels.names
