"""Scoring documents: the given order, no side effects."""

import numpy as np
import pytest
import torch
from torch import nn

from textcapsules.model.capsnet import CapsuleOutput
from textcapsules.model.network import Network
from textcapsules.model.score import (
    drop_unreadable,
    plain_batches,
    score_documents,
)


class CountingNetwork(Network):
    """Score 0 is the number of tokens, score 1 their sum."""

    def __init__(self) -> None:
        super().__init__(n_classes=2)
        self.weight = nn.Parameter(torch.ones(()))
        self.modes: list[tuple[bool, bool]] = []

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> CapsuleOutput:
        self.modes.append((self.training, torch.is_grad_enabled()))
        counts = torch.stack([mask.sum(1), ids.sum(1)], 1)
        return CapsuleOutput(counts * self.weight, None, ())


def documents(lengths: list[int]) -> list[np.ndarray]:
    return [np.arange(2, 2 + n) for n in lengths]


def test_scores_come_in_the_order_of_the_documents() -> None:
    lengths = [5, 0, 3, 9, 1, 4, 4, 2]
    scores = score_documents(CountingNetwork(), documents(lengths), batch_size=3)
    assert scores.dtype == np.float32
    assert scores[:, 0].tolist() == lengths
    assert scores[:, 1].tolist() == [sum(range(2, 2 + n)) for n in lengths]


@pytest.mark.parametrize(
    ("longest", "expected"), [(5, 512), (400, 163), (10**6, 1), (0, 512)]
)
def test_long_texts_are_few_in_a_batch_on_a_gpu(longest: int, expected: int) -> None:
    lengths = np.full(600, longest)
    batches = plain_batches(lengths, None, torch.device("cuda"))
    assert sorted(np.concatenate(batches).tolist()) == list(range(600))
    assert max(map(len, batches)) == expected
    assert max(map(len, plain_batches(lengths, None, torch.device("cpu")))) == 64
    assert max(map(len, plain_batches(lengths, 7, torch.device("cuda")))) == 7


def test_no_documents_are_no_batch_on_a_gpu() -> None:
    nothing = np.zeros(0, np.int64)
    assert sum(map(len, plain_batches(nothing, None, torch.device("cuda")))) == 0


def test_no_documents_give_no_rows() -> None:
    assert score_documents(CountingNetwork(), []).shape == (0, 2)


def test_scoring_is_without_dropout_or_gradient_and_keeps_the_networks_mode() -> None:
    network = CountingNetwork()
    for training in (True, False):
        network.train(training)
        score_documents(network, documents([3]))
        assert network.training == training
    assert network.modes == [(False, False), (False, False)]


def test_documents_without_a_known_word_are_emptied() -> None:
    # 0 is padding, 1 the unknown word.
    given = [np.array(ids) for ids in ([1, 1], [1, 2], [], [7])]
    kept = [ids.tolist() for ids in drop_unreadable(given)]
    assert kept == [[], [1, 2], [], [7]]
