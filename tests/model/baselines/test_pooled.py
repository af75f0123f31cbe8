"""Pooled states and a linear layer, against sums written out."""

import pytest
import torch
from torch import nn

from textcapsules.model.baselines.pooled import LabelAttention, MeanLinear

IDS = torch.tensor([[3, 1, 2, 0], [4, 0, 0, 0], [0, 0, 0, 0]])
MASK = IDS > 0


@pytest.fixture
def embedding() -> nn.Embedding:
    return nn.Embedding(5, 6, padding_idx=0)


def test_mean_of_the_words_goes_through_a_linear_layer(embedding: nn.Embedding) -> None:
    network = MeanLinear(embedding, size=6, n_classes=2).eval()
    logits = network(IDS, MASK).logits
    vectors, weight, bias = embedding.weight, network.output.weight, network.output.bias
    for row, words in enumerate(([3, 1, 2], [4])):
        mean = sum(vectors[word] for word in words) / len(words)
        torch.testing.assert_close(logits[row], weight @ mean + bias)
    torch.testing.assert_close(logits[2], bias)  # a text without words


def test_every_label_has_its_own_weighted_mean(embedding: nn.Embedding) -> None:
    network = LabelAttention(embedding, size=6, n_classes=2).eval()
    logits = network(IDS, MASK).logits
    for label in range(2):
        query, scale = network.query.weight[label], network.output.weight[label]
        weights = [torch.exp(query @ embedding.weight[word]) for word in (3, 1, 2)]
        mean = sum(
            w * embedding.weight[word]
            for w, word in zip(weights, (3, 1, 2), strict=True)
        ) / sum(weights)
        expected = scale @ mean + network.output.bias[label]
        torch.testing.assert_close(logits[0, label], expected)


@pytest.mark.parametrize("kind", [MeanLinear, LabelAttention])
def test_padding_changes_nothing(kind: type, embedding: nn.Embedding) -> None:
    network = kind(embedding, size=6, n_classes=2, several=True).eval()
    wide = torch.cat([IDS, torch.zeros(3, 5, dtype=torch.long)], 1)
    torch.testing.assert_close(
        network(wide, wide > 0).scores, network(IDS, MASK).scores
    )
