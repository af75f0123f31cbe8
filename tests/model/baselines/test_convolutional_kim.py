"""Kim's CNN against loops over windows, and his constraint on the output weights."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from textcapsules.model.baselines.convolutional import KimCnn

TEXTS = [[3, 1, 4, 1, 5, 9, 2, 6], [5, 3], [8], [9, 7, 9, 3]]


def make(**settings: Any) -> KimCnn:
    torch.manual_seed(0)
    embedding = nn.Embedding(10, 4, padding_idx=0)
    settings = {"ngram_sizes": (2, 3), "feature_maps": 5, "n_classes": 3, **settings}
    network = KimCnn(embedding, **settings).double().eval()
    for layer in network.ngrams:  # biases start at zero, which would hide their part
        nn.init.uniform_(layer.conv.bias, -0.5, 0.5)  # type: ignore[union-attr,arg-type]
    return network


def padded(texts: list[list[int]], width: int = 0) -> tuple[Tensor, Tensor]:
    width = max(width, *map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    lengths = torch.tensor(list(map(len, texts)))
    return ids, torch.arange(width) < lengths[:, None]


def logits_by_hand(network: KimCnn, text: list[int], *, edges: bool) -> np.ndarray:
    """Return the logits of one text, from numpy alone."""
    table = network.embedding.weight.detach().numpy()
    words = [table[word] for word in text]
    if not edges:
        words += [np.zeros(4)] * (3 - len(words))  # the widest window is three words
    inner, features = words, []
    for layer in network.ngrams:
        kernel, bias = (p.detach().numpy() for p in layer.conv.parameters())  # type: ignore[union-attr]
        size = kernel.shape[2]
        edge = [np.zeros(4)] * (size - 1 if edges else 0)
        words = [*edge, *inner, *edge]
        for filter_, offset in zip(kernel, bias, strict=True):
            best = 0.0  # ReLU
            for start in range(len(words) - size + 1):
                window = np.stack(words[start : start + size], 1)  # (V, size)
                best = max(best, float((filter_ * window).sum() + offset))
            features.append(best)
    weight, bias = (p.detach().numpy() for p in network.output.parameters())
    return weight @ np.array(features) + bias


edges = pytest.mark.parametrize("edges", [False, True])


@edges
def test_network_is_the_maximum_of_every_filter_over_the_windows(edges: bool) -> None:
    network = make(edges=edges)
    logits = network(*padded(TEXTS)).logits.detach().numpy()
    for row, text in zip(logits, TEXTS, strict=True):
        expected = logits_by_hand(network, text, edges=edges)
        np.testing.assert_allclose(row, expected, rtol=1e-12)


@edges
def test_neither_batch_nor_padding_matters(edges: bool) -> None:
    network = make(edges=edges)
    together = network(*padded(TEXTS, width=14)).logits
    for row, text in zip(together, TEXTS, strict=True):
        torch.testing.assert_close(row, network(*padded([text])).logits[0])


def test_published_sizes_have_the_published_features() -> None:
    network = make(ngram_sizes=(3, 4, 5), feature_maps=100)
    assert network.output.in_features == 300


def test_gradients_reach_every_parameter() -> None:
    network = make().train()
    network(*padded(TEXTS)).logits.square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_long_weight_vectors_are_shortened_and_short_ones_kept() -> None:
    network = make(max_norm=3.0)
    long, short = torch.full((10,), 2.0).double(), torch.full((10,), 0.1).double()
    with torch.no_grad():
        network.output.weight.copy_(torch.stack([long, short, -long]))
    network.constrain()
    weight = network.output.weight.detach()
    assert weight.norm(dim=1).tolist() == pytest.approx([3, 0.1 * 10**0.5, 3], rel=1e-6)
    torch.testing.assert_close(weight[0] / weight[0].norm(), long / long.norm())
    assert torch.equal(weight[1], short)
    torch.testing.assert_close(weight[2], -weight[0])


def test_without_a_norm_weights_are_left_alone() -> None:
    network = make(max_norm=0.0)
    with torch.no_grad():
        network.output.weight.fill_(9.0)
    network.constrain()
    assert (network.output.weight == 9.0).all()


@edges
def test_text_without_words_gives_the_bias(edges: bool) -> None:
    network = make(edges=edges)
    ids, mask = torch.zeros(1, 6, dtype=torch.long), torch.zeros(1, 6) > 0
    torch.testing.assert_close(network(ids, mask).logits[0], network.output.bias)
