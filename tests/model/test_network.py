"""What every network declares, and what the baselines return."""

from typing import get_args, get_type_hints

import pytest
import torch

from textcapsules.config import CLASSIC, ModelConfig, preset
from textcapsules.model.builder import build_system
from textcapsules.model.network import ClassOutput, Network, word_embedding

LOGITS = torch.tensor([[0.0, 0.0], [1.0, -1.0]])


ARCHITECTURES = [
    name
    for name in get_args(get_type_hints(ModelConfig)["architecture"])
    if name not in CLASSIC
]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_network_declares_what_training_asks_for(name: str) -> None:
    model = {"architecture": name, "embedding_size": 4}
    config = preset("paper").replace(model=model, baseline={"hidden_size": 3})
    network = build_system(config, n_words=72, n_classes=2)
    assert isinstance(network, Network) and network.n_classes == 2
    assert network.capturable is (name != "tree-lstm")
    assert network.mixed_lengths is (name == "vd-cnn")
    assert (network.length_step == 8) is (name not in ("cl-cnn", "vd-cnn"))
    assert (word_embedding(network) is None) is (name in ("cl-cnn", "vd-cnn"))
    network.constrain()


def test_one_label_shares_the_probability() -> None:
    e = 2.718281828
    expected = torch.tensor([[0.5, 0.5], [e / (e + 1 / e), 1 / e / (e + 1 / e)]])
    torch.testing.assert_close(ClassOutput(LOGITS).scores, expected)


def test_several_labels_have_a_probability_each() -> None:
    e = 2.718281828
    expected = torch.tensor([[0.5, 0.5], [1 / (1 + 1 / e), 1 / (1 + e)]])
    torch.testing.assert_close(ClassOutput(LOGITS, several=True).scores, expected)


@pytest.mark.parametrize("orphan", [True, False])
def test_the_loss_reads_logits_and_there_is_no_orphan(orphan: bool) -> None:
    assert ClassOutput(LOGITS).lengths(orphan=orphan) is LOGITS
