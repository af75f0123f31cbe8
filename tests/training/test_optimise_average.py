"""The average of the weights, against a loop over the weights after every step."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from run_folders import vectors_file
from textcapsules.training.optimise import AveragedWeights
from textcapsules.training.run import train
from textcapsules.training.selection import DevSet
from textcapsules.training.steps import EagerSteps
from toy import tiny_config


def values(network: torch.nn.Module) -> dict[str, np.ndarray]:
    state = network.state_dict()
    return {name: t.detach().double().numpy().copy() for name, t in state.items()}


@pytest.fixture
def watched(monkeypatch):
    """Return the weights before and after every step, and those judged on dev."""
    first, after, judged = [], [], []
    update, judge = EagerSteps.update, DevSet.judge

    def spy_update(self, *args):
        if not first:
            first.append(values(self.network))
        loss = update(self, *args)
        after.append(values(self.network))
        return loss

    def spy_judge(self, network):
        judged.append(values(network))
        return judge(self, network)

    monkeypatch.setattr(EagerSteps, "update", spy_update)
    monkeypatch.setattr(DevSet, "judge", spy_judge)
    return first, after, judged


@pytest.mark.parametrize("decay", [0.5, 0.99])
@pytest.mark.parametrize("embeddings", ["static", "non-static"])
def test_average_is_that_of_a_loop_over_all_steps(
    source, tmp_path, watched, decay, embeddings
):
    first, after, judged = watched
    config = tiny_config(
        source,
        text={"vectors": str(vectors_file(tmp_path))},
        model={"embeddings": embeddings},
        train={"average_weights": decay, "select": "last", "epochs": 3},
    )
    train(config, tmp_path / "model")
    assert len(after) == 3 * 9
    mean, ends = first[0], []
    for k, now in enumerate(after):
        share = min(decay, (1 + k) / (10 + k))
        mean = {name: share * mean[name] + (1 - share) * now[name] for name in now}
        if k % 9 == 8:
            ends.append(mean)
    for found, expected in zip(judged, ends, strict=True):
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], 1e-4, 1e-6)
    saved = load_file(tmp_path / "model" / "model.safetensors")
    for name, expected in ends[-1].items():
        np.testing.assert_allclose(saved[name].numpy(), expected, 1e-4, 1e-6)


def test_averaging_changes_no_step(source, tmp_path, watched):
    _, after, _ = watched
    train(tiny_config(source), tmp_path / "plain")
    plain = list(after)
    after.clear()
    train(tiny_config(source, train={"average_weights": 0.9}), tmp_path / "averaged")
    for one, other in zip(plain, after, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_measured_are_the_weights_that_were_judged(source, tmp_path, watched):
    _, _, judged = watched
    seen = []

    def measure(prepared, network):
        seen.append(values(network))
        return {"figure": 0.0}

    config = tiny_config(source, train={"average_weights": 0.9})
    train(config, tmp_path / "model", measure=measure)
    for one, other in zip(judged, seen, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_weights_come_back_whatever_happens() -> None:
    network = torch.nn.Linear(3, 2)
    network.bias.requires_grad_(False)
    average = AveragedWeights(network, 0.5)
    start = network.weight.detach().clone()
    place = network.weight.data_ptr()
    with torch.no_grad():
        network.weight += 1
    average.update(100)
    with pytest.raises(KeyError), average.in_place():
        torch.testing.assert_close(network.weight.detach(), start + 0.5)
        raise KeyError
    torch.testing.assert_close(network.weight.detach(), start + 1, rtol=0, atol=0)
    assert network.weight.data_ptr() == place
    assert list(average.mean) == ["weight"]
