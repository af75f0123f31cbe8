"""LR-LSTM: its regularisers against numbers worked out by hand, word by word."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.base.errors import ConfigError
from textcapsules.model.baselines.recurrent import LrLstm, reversal
from textcapsules.text.lexicon import INTENSIFIER, NEGATIVE, NEGATOR, NEUTRAL, POSITIVE

# Padding, unknown, film, good, bad, not, very, never.
KINDS = [NEUTRAL, NEUTRAL, NEUTRAL, POSITIVE, NEGATIVE, NEGATOR, INTENSIFIER, NEGATOR]
FILM, GOOD, BAD, NOT, VERY, NEVER = range(2, 8)


def network(**options: float) -> LrLstm:
    torch.manual_seed(0)
    settings = {"dropout": 0.0, "margin": 0.0, "strength": 1.0, "decay": 0.0, **options}
    net = LrLstm(
        nn.Embedding(len(KINDS), 5),
        hidden_size=4,
        n_classes=2,
        word_classes=torch.tensor(KINDS),
        **settings,  # type: ignore[arg-type]
    )
    with torch.no_grad():
        for part in (*net.lstms, *net.classes):
            for parameter in part.parameters():
                parameter.uniform_(-1.5, 1.5)
    return net.double()


def pad(texts: Sequence[Sequence[int]], extra: int = 0) -> tuple[Tensor, Tensor]:
    T = max(map(len, texts)) + extra
    ids = torch.full((len(texts), max(T, 1)), GOOD)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for row, words in enumerate(texts):
        ids[row, : len(words)] = torch.tensor(words, dtype=torch.long)
        mask[row, : len(words)] = True
    return ids, mask


def softmax(values: Sequence[float]) -> list[float]:
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """Return the mean of both Kullback-Leibler divergences."""
    one = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    other = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return (one + other) / 2


def followed(net: LrLstm, q: Sequence[float], word: int) -> list[float]:
    kind = KINDS[word]
    if kind in (POSITIVE, NEGATIVE):
        shift = net.shifts[0 if kind == POSITIVE else 1].tolist()
        return softmax([q[0] + shift[0], q[1] + shift[1]])
    if kind in (NEGATOR, INTENSIFIER):
        T = net.transforms[word].tolist()
        return softmax([row[0] * q[0] + row[1] * q[1] for row in T])
    return list(q)


def read(net: LrLstm, direction: int, words: Sequence[int]) -> list[list[float]]:
    """Return p_t of one direction, for words in its order of reading."""
    states, _ = net.lstms[direction](net.embedding(torch.tensor([words])))
    return net.classes[direction](states)[0].softmax(1).tolist()


def cost(net: LrLstm, p: Sequence[float], q: Sequence[float], word: int) -> float:
    return max(0.0, divergence(p, followed(net, q, word)) - net.margin)


def one_way_penalty(net: LrLstm, words: Sequence[int]) -> float:
    """Add up the paper's four regularisers over a text read from its end."""
    words = list(words)[::-1]
    p, total = read(net, 0, words), 0.0
    for t, word in enumerate(words):
        before = p[t - 1] if t else [0.5, 0.5]
        costs = [cost(net, p[t], before, word)]
        if KINDS[word] in (NEGATOR, INTENSIFIER) and t + 1 < len(words):
            costs.append(cost(net, p[t], p[t + 1], word))
        total += min(costs)
    return total


def two_way_penalty(net: LrLstm, words: Sequence[int]) -> float:
    forward, backward = read(net, 0, words), read(net, 1, list(words)[::-1])[::-1]
    total = 0.0
    for t, word in enumerate(words):
        left = forward[t - 1] if t else [0.5, 0.5]
        right = backward[t + 1] if t + 1 < len(words) else [0.5, 0.5]
        total += min(
            cost(net, forward[t], left, word), cost(net, backward[t], right, word)
        )
    return total


TEXTS = [
    [FILM],
    [FILM, FILM, 1],
    [GOOD],
    [FILM, GOOD, FILM, BAD],
    [NOT],
    [FILM, NOT, GOOD, NEVER],
    [VERY, GOOD, VERY, FILM, NOT, VERY, BAD],
]


@pytest.mark.parametrize("margin", [0.0, 0.02])
@pytest.mark.parametrize("words", TEXTS)
def test_penalty_is_the_sum_of_the_regularisers(
    words: list[int], margin: float
) -> None:
    one, two = network(margin=margin), network(margin=margin, bidirectional=True)
    for net in (one, two):  # as learned: no matrix is symmetric any more
        nn.init.uniform_(net.transforms, -2, 2)
        nn.init.uniform_(net.shifts, -2, 2)
    penalties = one(*pad([words])).penalty, two(*pad([words])).penalty
    assert penalties[0].item() == pytest.approx(one_way_penalty(one, words))
    assert penalties[1].item() == pytest.approx(two_way_penalty(two, words))


def test_divergence_of_known_distributions() -> None:
    """(0.8 - 0.5) ln(0.8 / 0.5) + (0.2 - 0.5) ln(0.2 / 0.5), halved: 0.15 ln 4."""
    p, q = (torch.tensor([[row]]).double().log() for row in ([0.8, 0.2], [0.5, 0.5]))
    assert network().distance(p, q).item() == pytest.approx(0.15 * math.log(4))
    near = network(margin=0.2).distance(p, q)
    assert near.item() == pytest.approx(0.15 * math.log(4) - 0.2)
    assert network(margin=0.3).distance(p, q).item() == 0


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (FILM, [0.8, 0.2]),
        (GOOD, softmax([0.8 - 0.5, 0.2 + 0.5])),
        (BAD, softmax([0.8 + 0.5, 0.2 - 0.5])),
        (NOT, softmax([-0.8 + 0.2, 0.8 - 0.2])),
        (VERY, softmax([2 * 0.8 - 0.2, -0.8 + 2 * 0.2])),
    ],
)
def test_words_begin_with_what_they_do(word: int, expected: list[float]) -> None:
    q = torch.tensor([[[0.8, 0.2]]]).double().log()
    followed = network().follow(q, torch.tensor([[word]])).exp()
    assert followed[0, 0].tolist() == pytest.approx(expected)


def test_penalty_is_averaged_over_texts_of_any_length() -> None:
    net = network()
    each = [one_way_penalty(net, words) for words in TEXTS]
    penalty = net(*pad(TEXTS, extra=3)).penalty
    assert penalty.item() == pytest.approx(sum(each) / len(each))
    half = network(strength=0.5)(*pad(TEXTS)).penalty
    assert half.item() == pytest.approx(sum(each) / len(each) / 2)


def test_decay_is_the_squared_norm_without_word_vectors() -> None:
    net = network(strength=0.0, decay=0.1)
    truth = sum(
        value.square().sum().item()
        for name, value in net.named_parameters()
        if name != "embedding.weight"
    )
    assert net(*pad(TEXTS)).penalty.item() == pytest.approx(0.05 * truth)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_logits_are_read_from_the_ends(bidirectional: bool) -> None:
    net = network(bidirectional=bidirectional).eval()
    output = net(*pad(TEXTS, extra=4))
    assert output.penalty is None
    for logits, words in zip(output.logits, TEXTS, strict=True):
        vectors = net.embedding(torch.tensor([words]))
        ends = [net.lstms[-1](vectors.flip(1))[0][0, -1]]
        if bidirectional:
            ends.insert(0, net.lstms[0](vectors)[0][0, -1])
        votes = [part(end) for part, end in zip(net.classes, ends, strict=True)]
        torch.testing.assert_close(logits, torch.stack(votes).sum(0))


def test_empty_text_gets_the_bias_and_no_penalty() -> None:
    net = network()
    output = net(torch.zeros(1, 3).long(), torch.zeros(1, 3).bool())
    torch.testing.assert_close(output.logits[0], net.classes[0].bias)
    assert output.penalty.item() == 0


def test_gradients_reach_shifts_and_the_words_own_matrices() -> None:
    net = network()
    net(*pad([[NOT, GOOD, FILM, VERY, BAD]])).penalty.backward()
    assert net.transforms.grad is not None and net.shifts.grad is not None
    touched = net.transforms.grad.abs().sum((1, 2)) > 0
    assert touched.nonzero().flatten().tolist() == [NOT, VERY]
    assert (net.shifts.grad.abs().sum(1) > 0).all()


def test_saved_network_needs_no_lexicon() -> None:
    net = network()
    with torch.no_grad():
        net.transforms[NEVER] += 1
    plain = LrLstm(
        nn.Embedding(len(KINDS), 5),
        hidden_size=4,
        n_classes=2,
        dropout=0.0,
        margin=0.0,
        strength=1.0,
        decay=0.0,
    ).double()
    plain.load_state_dict(net.state_dict())
    assert plain.word_classes.tolist() == KINDS
    batch = pad(TEXTS)
    assert plain(*batch).penalty.item() == net(*batch).penalty.item()


@pytest.mark.parametrize("n_classes", [1, 6])
def test_other_numbers_of_classes_are_refused(n_classes: int) -> None:
    with pytest.raises(ConfigError, match=f"must be 2.*got {n_classes}"):
        LrLstm(nn.Embedding(3, 2), hidden_size=2, n_classes=n_classes)


def test_reversal_leaves_padding_in_place() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    assert reversal(mask).tolist() == [[2, 1, 0, 3], [0, 1, 2, 3], [3, 2, 1, 0]]


def test_negation_is_learned() -> None:
    net = network(strength=0.1).float()
    texts, labels = [[GOOD], [BAD], [NOT, GOOD], [NOT, BAD]], [1, 0, 0, 1]
    ids, mask = pad(texts)
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(80):
        optimiser.zero_grad()
        output = net(ids, mask)
        loss = F.cross_entropy(output.logits, torch.tensor(labels)) + output.penalty
        loss.backward()
        optimiser.step()
    assert net.eval()(ids, mask).scores.argmax(1).tolist() == labels
