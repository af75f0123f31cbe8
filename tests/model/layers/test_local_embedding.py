"""Trained rows and fixed ones against one whole table of vectors."""

import pytest
import torch

from textcapsules.config import ModelConfig
from textcapsules.model.builder import build_embedding, build_network
from textcapsules.model.layers import WordEmbedding
from textcapsules.model.network import EXTRA, saved_tensors

OWN = torch.arange(12.0).reshape(4, 3) / 7
EXTRA_ROWS = (torch.arange(6.0).reshape(2, 3) - 3).half()


def embedding(**options) -> WordEmbedding:
    return build_embedding(ModelConfig(**options), OWN, EXTRA_ROWS)


@pytest.mark.parametrize("training", [False, True])
def test_numbers_past_the_trained_rows_are_fixed_ones(training):
    whole = torch.cat([OWN, EXTRA_ROWS.float()])
    whole[0] = 0  # padding
    ids = torch.tensor([[0, 5, 3], [4, 1, 0]])
    vectors = embedding().train(training)(ids)
    assert vectors.dtype == torch.float32
    assert torch.equal(vectors, whole[ids])


def test_training_may_be_spared_the_fixed_rows():
    words = embedding()
    words.extra_in_training = False
    ids = torch.tensor([1, 3])
    assert torch.equal(words.train()(ids), OWN[ids])
    with pytest.raises(IndexError):
        words(torch.tensor([4]))
    assert torch.equal(words.eval()(torch.tensor([4])), EXTRA_ROWS[:1].float())


def test_gradients_reach_the_trained_rows_alone():
    words = embedding()
    words(torch.tensor([3, 5, 5, 3, 0])).sum().backward()
    assert words.weight.grad is not None
    assert words.weight.grad.tolist() == [[0] * 3, [0] * 3, [0] * 3, [2] * 3]
    assert [name for name, _ in words.named_parameters()] == ["weight"]


def test_fixed_rows_are_saved_with_a_model_and_kept_out_of_copies_of_weights():
    network = build_network(
        ModelConfig(architecture="cnn"),
        n_words=4,
        n_classes=2,
        max_tokens=9,
        vectors=OWN,
        extra=EXTRA_ROWS,
    )
    assert EXTRA not in network.state_dict()
    assert torch.equal(saved_tensors(network)[EXTRA], EXTRA_ROWS)


def test_a_network_without_fixed_rows_saves_none():
    network = build_network(ModelConfig(), n_words=4, n_classes=2, max_tokens=9)
    assert saved_tensors(network).keys() == network.state_dict().keys()


def test_fixed_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="as long as the trained ones"):
        build_embedding(ModelConfig(), OWN, EXTRA_ROWS[:, :2])
