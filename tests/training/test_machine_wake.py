import threading

import pytest
import torch

from textcapsules.training import machine as wake


def test_a_gpu_is_woken_beside_the_block_and_awake_past_it(monkeypatch):
    reading, woken = threading.Event(), []

    def first_work(device):
        assert reading.wait(10)  # set by the block: both run at once
        woken.append(device)

    monkeypatch.setattr(wake, "first_work", first_work)
    gpu = torch.device("cuda", 0)
    with wake.awake(gpu):
        assert not woken
        reading.set()
    assert woken == [gpu]


def test_a_gpu_that_cannot_be_woken_is_left_to_the_training(monkeypatch):
    def first_work(device):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(wake, "first_work", first_work)
    with wake.awake(torch.device("cuda")):
        pass


def test_errors_of_the_block_are_its_own(monkeypatch):
    monkeypatch.setattr(wake, "first_work", lambda device: None)
    with pytest.raises(KeyError), wake.awake(torch.device("cuda")):
        raise KeyError("texts")


def test_a_cpu_needs_no_waking(monkeypatch):
    monkeypatch.setattr(wake, "first_work", lambda device: pytest.fail("woken"))
    with wake.awake(torch.device("cpu")):
        pass


def test_first_work_draws_no_random_number():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    wake.first_work(torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
