"""What does not fit into memory is one line, before it is tried where possible."""

import numpy as np
import pytest
import torch

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.config import preset
from textcapsules.training.machine import check_memory, enough_memory, total_memory
from textcapsules.training.run import train
from toy import tiny_config


@pytest.mark.parametrize(
    ("option", "value"),
    [("filters", 2**31 - 1), ("embedding_size", 10**9), ("capsule_types", 10**8)],
)
def test_network_too_large_is_told_with_its_option_and_bytes(
    source, tmp_path, option, value
):
    if total_memory() is None:
        pytest.skip("the system does not tell its memory")
    flag = option.replace("_", "-")
    with pytest.raises(ConfigError, match=rf"need [\d,]+ bytes: --{flag} {value}\."):
        train(tiny_config(source, model={option: value}), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_needed_bytes_are_four_times_the_weights(monkeypatch):
    config = preset("paper")
    size = 50 * config.model.embedding_size * 4 * 4  # of the embedding alone
    monkeypatch.setattr("textcapsules.training.machine.total_memory", lambda: size)
    with pytest.raises(ConfigError, match="must fit into memory"):
        check_memory(config, n_words=50, n_classes=2)
    monkeypatch.setattr("textcapsules.training.machine.total_memory", lambda: None)
    check_memory(config, n_words=50, n_classes=2)


def test_looking_at_the_size_draws_no_random_number():
    state = torch.get_rng_state()
    check_memory(preset("best"), n_words=50, n_classes=2)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: np.empty(2**60, np.int8),
        lambda: torch.empty(2**60, dtype=torch.int8),
        lambda: torch.empty(2**40, 2**40),
    ],
    ids=["numpy", "torch", "overflow"],
)
def test_memory_that_runs_out_is_one_line(ask):
    message = "memory must hold a batch of 25"
    with (
        pytest.raises(TextCapsulesError, match=message) as caught,
        enough_memory(preset("best")),
    ):
        ask()
    assert "\n" not in str(caught.value)


def test_other_faults_keep_their_own_words():
    with pytest.raises(RuntimeError, match="of ours"), enough_memory(preset("best")):
        raise RuntimeError("a fault of ours")
