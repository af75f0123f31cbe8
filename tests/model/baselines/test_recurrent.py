"""LSTM and BiLSTM against the equations written out, one word after the other."""

import pytest
import torch
from torch import Tensor, nn

from textcapsules.model.baselines.recurrent import RecurrentNetwork

POOLINGS = ["last", "mean", "max"]
TEXTS = [[3, 1, 4, 1, 5], [9, 2], [6], [5, 3, 5, 8, 9, 7, 9]]


def make(bidirectional: bool, pooling: str, **settings) -> RecurrentNetwork:
    torch.manual_seed(0)
    embedding = nn.Embedding(10, 4, padding_idx=0)
    network = RecurrentNetwork(
        embedding,
        hidden_size=3,
        n_classes=2,
        bidirectional=bidirectional,
        pooling=pooling,
        **settings,
    )
    return network.double().eval()


def padded(texts: list[list[int]], width: int = 0) -> tuple[Tensor, Tensor]:
    width = max(width, *map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    lengths = torch.tensor(list(map(len, texts)))
    return ids, torch.arange(width) < lengths[:, None]


def states_by_hand(network: RecurrentNetwork, text: list[int], way: int) -> Tensor:
    """Return the states (T, H) of one direction, in the order of the text."""
    weights = dict(network.lstms[way].named_parameters())
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    w, u, b, a = (weights[f"{name}_l0"] for name in names)
    h, c, found = torch.zeros(3).double(), torch.zeros(3).double(), []
    for word in reversed(text) if way else text:
        i, f, g, o = (w @ network.embedding.weight[word] + b + u @ h + a).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        found.append(h)
    return torch.stack(found[::-1] if way else found)


def logits_by_hand(network: RecurrentNetwork, text: list[int]) -> Tensor:
    parts = []
    for way in range(len(network.lstms)):
        states = states_by_hand(network, text, way)
        parts.append(
            {
                "last": states[0] if way else states[-1],
                "mean": states.sum(0) / len(text),
                "max": states.max(0).values,
            }[network.pooling]
        )
    return network.output.weight @ torch.cat(parts) + network.output.bias


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_network_follows_the_equations(bidirectional: bool, pooling: str) -> None:
    network = make(bidirectional, pooling)
    logits = network(*padded(TEXTS)).logits
    for row, text in zip(logits, TEXTS, strict=True):
        torch.testing.assert_close(row, logits_by_hand(network, text))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_neither_batch_nor_padding_matters(bidirectional: bool, pooling: str) -> None:
    network = make(bidirectional, pooling)
    together = network(*padded(TEXTS, width=12)).logits
    for row, text in zip(together, TEXTS, strict=True):
        alone = network(*padded([text])).logits[0]
        torch.testing.assert_close(row, alone)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_text_without_words_gives_finite_logits(pooling: str) -> None:
    network = make(True, pooling)
    ids, mask = torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 3) > 0
    assert network(ids, mask).logits.isfinite().all()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_reach_every_parameter(bidirectional: bool, pooling: str) -> None:
    network = make(bidirectional, pooling).train()
    network(*padded(TEXTS)).logits.square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_dropout_acts_in_training_only() -> None:
    network, batch = make(False, "last", dropout=0.5), padded(TEXTS)
    assert torch.equal(network(*batch).logits, network(*batch).logits)
    network.train()
    logits_drawn = [network(*batch).logits for _ in range(8)]
    assert any(not torch.equal(logits_drawn[0], other) for other in logits_drawn[1:])
