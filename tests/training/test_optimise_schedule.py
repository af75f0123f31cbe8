"""The learning rate that every step was made with, against the formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textcapsules.config import TrainConfig
from textcapsules.training.optimise import rate_at
from textcapsules.training.run import train
from textcapsules.training.steps import EagerSteps
from toy import tiny_config


def formula(n: int, schedule: str, warmup: float) -> np.ndarray:
    """Return the factors on the rate of n steps."""
    k = np.arange(n)
    rise = np.minimum(1, (k + 1) / (warmup * n)) if warmup else np.ones(n)
    fall = {
        "constant": np.ones(n),
        "linear": (n - k) / n,
        "cosine": 0.5 * (1 + np.cos(np.pi * k / n)),
    }
    return rise * fall[schedule]


@pytest.fixture
def rates(monkeypatch) -> list[float]:
    """Return the rates of the steps that are made, as the optimiser has them."""
    seen: list[float] = []
    honest = EagerSteps.update

    def spy(self, ids, mask, targets, epoch):
        seen.append(float(self.optimiser.param_groups[0]["lr"]))
        return honest(self, ids, mask, targets, epoch)

    monkeypatch.setattr(EagerSteps, "update", spy)
    return seen


@pytest.mark.parametrize(
    ("schedule", "warmup"),
    [("linear", 0.0), ("cosine", 0.0), ("constant", 0.4), ("cosine", 0.1)],
)
@pytest.mark.parametrize(("joined", "n_steps"), [(0.0, 9), (0.5, 14)])
def test_every_step_has_the_rate_of_the_formula(
    source, tmp_path, rates, schedule, warmup, joined, n_steps
):
    changes = {
        "schedule": schedule,
        "warmup": warmup,
        "joined": joined,
        "rate_decay": 0.5,
        "epochs": 3,
    }
    record = train(tiny_config(source, train=changes), tmp_path / "model").record
    # 54 texts, and 27 joined ones if asked for, six in a batch
    by_epoch = np.repeat([0.05, 0.025, 0.0125], n_steps)
    expected = by_epoch * formula(3 * n_steps, schedule, warmup)
    assert rates == pytest.approx(expected, rel=1e-6)
    told = [epoch["learning_rate"] for epoch in record["epochs"]]
    assert told == pytest.approx(expected[n_steps - 1 :: n_steps])


def test_patience_ends_a_run_before_its_rate_is_low(source, tmp_path, rates):
    changes = {"schedule": "linear", "epochs": 40, "patience": 2}
    record = train(tiny_config(source, train=changes), tmp_path / "model").record
    assert len(record["epochs"]) < 40
    expected = 0.05 * formula(40 * 9, "linear", 0.0)
    assert rates == pytest.approx(expected[: len(rates)], rel=1e-6)


def test_constant_rate_is_set_once_an_epoch(source, tmp_path, monkeypatch):
    given_rates = []
    monkeypatch.setattr(
        EagerSteps, "set_rate", lambda self, rate: given_rates.append(rate)
    )
    train(tiny_config(source, train={"rate_decay": 0.5}), tmp_path / "model")
    assert given_rates == [0.05, 0.025, 0.0125, 0.00625]


@given(
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    warmup=st.just(0.0) | st.floats(1e-9, 1, exclude_max=True),
    epochs=st.integers(1, 5),
    n_steps=st.integers(1, 7),
)
def test_rate_is_above_zero_and_at_most_the_one_asked_for(
    schedule, warmup, epochs, n_steps
):
    options = TrainConfig(
        learning_rate=0.1, schedule=schedule, warmup=warmup, epochs=epochs
    )
    found = [
        rate_at(options, epoch, step, n_steps)
        for epoch in range(epochs)
        for step in range(n_steps)
    ]
    assert all(0 < rate <= 0.1 for rate in found)
    expected = 0.1 * formula(epochs * n_steps, schedule, warmup)
    assert found == pytest.approx(expected)
