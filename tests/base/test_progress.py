"""The progress bar of a training run, as a terminal shows it."""

import io
import logging
from typing import Any

import pytest
from rich.console import Console

from textcapsules.base import progress
from textcapsules.base.progress import training_bar
from textcapsules.training.loop import Step

RECORD: dict[str, Any] = {
    "epoch": 1,
    "loss": 0.5,
    "dev_score": 0.75,
    "dev_accuracy": 0.75,
    "train_seconds": 1.0,
    "dev_seconds": 0.5,
}
LINE = "epoch 1: loss 0.5000, dev accuracy 75.0, 1.5 s"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what a terminal is sent."""
    sent = io.StringIO()
    plain: dict[str, Any] = {"highlight": False, "no_color": True}
    terminal = Console(file=sent, force_terminal=True, width=80, **plain)
    monkeypatch.setattr(progress, "err", terminal)
    return sent


def last_bar(shown: io.StringIO) -> str:
    """Return the bar as it was drawn last."""
    lines = shown.getvalue().replace("\r", "\n").splitlines()
    return [line for line in lines if "loss" in line and "dev" in line][-1]


@pytest.mark.parametrize(
    ("step", "epoch", "done"),
    [
        (Step(epoch=0, step=0, n_epochs=3, n_steps=10, loss=0.25), "epoch 1/3", 1 / 30),
        (Step(epoch=1, step=4, n_epochs=3, n_steps=10, loss=0.25), "epoch 2/3", 0.5),
        (Step(epoch=11, step=9, n_epochs=12, n_steps=10, loss=0.25), "epoch 12/12", 1),
        (Step(0, 4, 1, 10, 0.25, stage="warm-up"), "warm-up 1/1", 0.5),
    ],
)
def test_bar_shows_the_epoch_of_all_and_the_share_of_all_steps(
    shown: io.StringIO, step: Step, epoch: str, done: float
) -> None:
    with training_bar(quiet=False) as watch:
        watch["on_step"](step)
    bar = last_bar(shown)
    assert f"{epoch} " in bar
    assert "loss 0.2500  dev -" in bar
    assert bar.count("━") == pytest.approx(40 * done, abs=1)  # of 40 places


def test_bar_before_the_first_step_does_not_know_how_many_epochs_there_are(
    shown: io.StringIO,
) -> None:
    with training_bar(quiet=False):
        pass
    assert "epoch 1 " in last_bar(shown)


def test_bar_shows_the_dev_score_and_leaves_a_line_per_epoch(
    shown: io.StringIO,
) -> None:
    with training_bar(quiet=False) as watch:
        watch["on_epoch"](RECORD)
        watch["on_step"](Step(epoch=1, step=0, n_epochs=3, n_steps=10, loss=0.125))
    assert "loss 0.1250  dev 75.0" in last_bar(shown)
    assert LINE in shown.getvalue()


def test_elsewhere_than_on_a_terminal_there_are_lines_and_no_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=sent, width=20))
    with training_bar(quiet=False) as watch:
        assert watch["on_step"] is None
        watch["on_epoch"](RECORD)
    assert sent.getvalue() == f"{LINE}\n"


def test_quiet_shows_nothing(shown: io.StringIO) -> None:
    with training_bar(quiet=True) as watch:
        assert watch == {"on_step": None, "on_epoch": None, "on_encode": None}
    assert shown.getvalue() == ""


def test_kernels_are_said_to_be_compiled_once(shown: io.StringIO) -> None:
    logger = logging.getLogger(progress.COMPILING)
    with training_bar(quiet=False):
        logger.info("kernel forward")
        logger.info("kernel backward")
    logger.info("kernel later")
    assert shown.getvalue().count("compiling the routing kernels, once on") == 1
    assert logger.level == logging.NOTSET
    assert not logger.handlers


@pytest.mark.parametrize("quiet", [True, False])
def test_loading_is_shown_on_a_terminal_unless_quiet(
    shown: io.StringIO, quiet: bool
) -> None:
    with progress.loading(quiet=quiet):
        pass
    assert ("loading" in shown.getvalue()) is not quiet
