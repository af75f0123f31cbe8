"""Lengths before the first step, measured again with code of this file's own."""

import numpy as np
import pytest
import torch

from textcapsules.config import preset
from textcapsules.model.builder import build_network
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.training.run import train
from textcapsules.training.start import sample, scale_lengths
from toy import TINY_MODEL, tiny_config, toy_file, toy_rows

DOCUMENTS = [
    np.random.default_rng(row).integers(2, 50, 3 + row % 9).astype(np.int32)
    for row in range(40)
]


def make(**model) -> CapsuleNetwork:
    torch.manual_seed(0)
    config = preset("paper").replace(model={**TINY_MODEL, **model})
    return build_network(config.model, n_words=50, n_classes=3, max_tokens=20)


def lengths(network: CapsuleNetwork) -> list[list[float]]:
    """Return the mean length of every layer of every branch, one text at a time."""
    found = [[[], [], []] for _ in network.branches]
    for words in DOCUMENTS:
        ids = torch.from_numpy(words).long()[None]
        output = network.eval()(ids, ids > 0, inspect=True)
        for branch, routed in zip(found, output.branches, strict=True):
            inside = routed.mask[0]
            branch[0] += routed.capsules[0][inside].norm(dim=-1).flatten().tolist()
            if routed.conv is not None:  # alone, a text has no window outside it
                branch[1] += routed.conv.poses.norm(dim=-1).flatten().tolist()
            branch[2] += routed.classes.poses[0].norm(dim=-1).tolist()
    return [[float(np.mean(layer)) for layer in branch if layer] for branch in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        {},
        {"conv_window": 1},
        {"conv_capsules": False},
        {"shared": False},
        {"amendment": False},
        {"squash": "sabour"},
        {"squash": "tanh"},
        {"squash": "exp"},
        {"iterations": 1},
    ],
)
@pytest.mark.parametrize("goal", [0.1, 0.5])
def test_every_layer_starts_as_long_as_asked(model, goal) -> None:
    network = make(**model)
    scale_lengths(network, DOCUMENTS, goal, seed=0)
    for branch in lengths(network):
        assert branch == pytest.approx([goal] * len(branch), rel=0.1)


def test_only_sizes_change_and_only_of_capsule_layers() -> None:
    before, after = make().state_dict(), make()
    scale_lengths(after, DOCUMENTS, 0.5, seed=0)
    for name, weight in after.state_dict().items():
        scaled = "transform" in name or "primary.linear.weight" in name
        ratio = (weight.flatten() / before[name].flatten()).nan_to_num(1.0)
        assert torch.allclose(ratio, ratio[:1], rtol=1e-4), name
        assert bool((ratio[0] != 1).item()) == scaled, name
    assert after.training


def test_the_sample_is_bounded_and_has_words() -> None:
    long = [np.full(5000, 7, np.int32), np.zeros(0, np.int32), np.ones(9000, np.int32)]
    assert sample(long, seed=0).ids.shape[0] == 1
    assert sample(DOCUMENTS + long[1:2], seed=1).ids.shape == (40, 11)


def test_training_starts_there(tmp_path) -> None:
    file, texts = toy_file(tmp_path), [text for text, _ in toy_rows()]
    found = []
    for goal in (0.0, 0.5):
        still = {"epochs": 1, "learning_rate": 1e-50, "start_length": goal}
        config = tiny_config(file, train=still)
        found.append(train(config, tmp_path / str(goal)).scores(texts).mean())
    # The orphan, which has no score, counts in the mean too.
    assert found[0] < 0.2 < 0.3 < found[1] < 0.7
