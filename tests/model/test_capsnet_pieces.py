"""Networks of word pieces beside those of an encoder's states: two views of a text."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from textcapsules.config import ModelConfig, RunConfig
from textcapsules.model.builder import build_network, has_pieces
from textcapsules.model.capsnet import CapsuleNetwork, NgramBranch
from textcapsules.reasons.attributions import faded_words
from textcapsules.reasons.couplings import connection_strengths, contributions
from textcapsules.reasons.word_contributions import word_contributions
from textcapsules.text.encoder import EncoderEmbedding, PretrainedEncoder, load_encoder
from textcapsules.text.piece_vectors import PieceVectors, known_pieces
from tiny_encoder import write_encoder

SIZE = 6  # of a piece's vector; a state has 16 numbers
SMALL = ModelConfig(
    ngram_sizes=(1, 2),
    filters=5,
    capsule_types=3,
    capsule_size=4,
    conv_capsules=False,
    piece_size=SIZE,
)
TEXTS = ["My cat purrs. The dog barks!", "the app crashes", "hello", ""]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> PretrainedEncoder:
    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    return load_encoder(str(write_encoder(folder)))


@pytest.fixture(scope="module")
def ids(encoder: PretrainedEncoder) -> torch.Tensor:
    rows = encoder.tokenizer.encode(TEXTS, 40)
    padded = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return torch.from_numpy(padded)


def build(
    encoder: PretrainedEncoder,
    config: ModelConfig = SMALL,
    *,
    pieces: bool = True,
    **options: Any,
) -> CapsuleNetwork:
    """Build a network in which every piece of the texts has a vector."""
    torch.manual_seed(0)
    beside = None
    if pieces:
        rows = encoder.tokenizer.encode(TEXTS, 40)
        known = known_pieces(rows, encoder.states.n_pieces)
        beside = PieceVectors(known, size=SIZE)
    embedding = EncoderEmbedding(encoder.states, beside)
    settings: dict[str, Any] = {"n_words": 2, "n_classes": 3, "max_tokens": 40}
    network = build_network(config, **settings, encoder=embedding, **options).eval()
    for name, weight in network.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.4)
    return network


def branches_of(network: CapsuleNetwork) -> list[NgramBranch]:
    return [branch for branch in network.branches if isinstance(branch, NgramBranch)]


def set_shares(network: CapsuleNetwork, *shares: float) -> None:
    assert network.shares is not None
    network.shares.copy_(torch.tensor(shares))


def branch_lengths(network: CapsuleNetwork, ids: torch.Tensor) -> list[np.ndarray]:
    routed = network.route(ids, ids > 0, couplings=False)
    return [each.classes.lengths.detach().double().numpy() for each in routed]


def test_states_have_networks_of_each_size_and_pieces_networks_of_peaks_too(
    encoder: PretrainedEncoder,
) -> None:
    made = [
        (each.ngrams.ngram_size, each.numbers, each.peaks)
        for each in branches_of(build(encoder))
    ]
    states, pieces = (0, 16), (16, 16 + SIZE)
    assert made == [
        *((1, states, False), (2, states, False)),
        *((1, pieces, False), (2, pieces, False)),
        *((1, pieces, True), (2, pieces, True)),
    ]


@torch.no_grad()
def test_views_count_alike_at_first(
    encoder: PretrainedEncoder, ids: torch.Tensor
) -> None:
    network = build(encoder)
    lengths = branch_lengths(network, ids)
    expected = np.mean([np.mean(lengths[:2], 0), np.mean(lengths[2:], 0)], 0)
    output = network(ids, ids > 0)
    np.testing.assert_allclose(output.lengths(orphan=True), expected, atol=1e-6)


@torch.no_grad()
def test_shares_weigh_the_lengths_of_the_networks(
    encoder: PretrainedEncoder, ids: torch.Tensor
) -> None:
    network = build(encoder)
    shares = (0.3, 0.05, 0.2, 0.25, 0.15, 0.05)
    set_shares(network, *shares)
    lengths = branch_lengths(network, ids)
    expected = np.zeros_like(lengths[0])
    for share, each in zip(shares, lengths, strict=True):
        expected += share * each
    output = network(ids, ids > 0)
    np.testing.assert_allclose(output.scores, expected[:, :3], atol=1e-6)
    np.testing.assert_allclose(output.orphan, expected[:, 3], atol=1e-6)
    assert network.branch_shares() == pytest.approx(shares)


@torch.no_grad()
def test_states_alone_are_the_network_without_pieces(
    encoder: PretrainedEncoder, ids: torch.Tensor
) -> None:
    both, alone = build(encoder), build(encoder, pieces=False)
    assert alone.shares is None and "shares" not in alone.state_dict()
    tensors = both.state_dict()
    alone.load_state_dict({name: tensors[name] for name in alone.state_dict()})
    set_shares(both, 0.5, 0.5, 0, 0, 0, 0)
    found, expected = (
        network(ids, ids > 0).lengths(orphan=True) for network in (both, alone)
    )
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert expected[:3].std() > 0.01 and not expected[3].any()


@torch.no_grad()
def test_networks_read_their_own_numbers_only(
    encoder: PretrainedEncoder, ids: torch.Tensor
) -> None:
    network = build(encoder)
    mask, vectors = ids > 0, network.embedding(ids)
    before = network.route_branches(vectors, mask, couplings=False)
    for numbers, changes in (
        (slice(0, 16), [True] * 2 + [False] * 4),
        (slice(16, None), [False] * 2 + [True] * 4),
    ):
        moved = vectors.clone()
        moved[..., numbers] += 0.5 * torch.randn_like(moved[..., numbers])
        after = network.route_branches(moved, mask, couplings=False)
        for was, now, differs in zip(before, after, changes, strict=True):
            same = torch.equal(was.classes.lengths, now.classes.lengths)
            assert same != differs


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        ({"encoder": "tiny"}, {}, True),
        ({}, {}, False),
        ({"encoder": "tiny"}, {"piece_size": 0}, False),
        ({"encoder": "tiny"}, {"architecture": "encoder-linear"}, False),
        ({"encoder": "tiny"}, {"routing": "attention"}, False),
        ({"encoder": "tiny"}, {"average": "poses"}, False),
    ],
)
def test_pieces_stand_beside_states_of_capsules_whose_lengths_are_averaged(
    text: dict, model: dict, expected: bool
) -> None:
    run = RunConfig().replace(text=text, model={"piece_size": 6, **model})
    assert has_pieces(run) == expected


# Reasons.

KINDS = {
    "two-layers": {},
    "joint-edges": {"joint": True, "edges": True, "peaks": True, "normalise": "total"},
    "three-layers": {"conv_capsules": True, "conv_types": 2},
}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_contributions_add_up_to_lengths_of_unequal_views(
    encoder: PretrainedEncoder, ids: torch.Tensor, kind: str
) -> None:
    network = build(encoder, replace(SMALL, **KINDS[kind]))
    n_branches = len(network.branches)
    shares = np.arange(1, n_branches + 1) / sum(range(1, n_branches + 1))
    set_shares(network, *shares)
    mask = ids > 0
    with torch.enable_grad(), faded_words(network.embedding, 1.0) as kept:
        output = network(ids, mask, inspect=True)
    ngrams = sum(part.sum(1) for part in contributions(network, output))
    expected = output.lengths(orphan=True)
    torch.testing.assert_close(ngrams, expected, atol=1e-5, rtol=1e-4)
    words = word_contributions(network, output, kept[0].detach(), mask)
    full = mask.sum(1) != 1  # a single word is not in every n-gram of its window
    found = words.sum(1)[full]
    torch.testing.assert_close(found, expected[full], atol=1e-5, rtol=1e-4)
    assert not words[~mask].any()


@torch.no_grad()
def test_couplings_have_the_shares_of_their_networks(
    encoder: PretrainedEncoder, ids: torch.Tensor
) -> None:
    """Each capsule's couplings, averaged over the C of a position, times the share."""
    network = build(encoder)
    shares = (0.3, 0.05, 0.2, 0.25, 0.15, 0.05)
    set_shares(network, *shares)
    output = network(ids, ids > 0, inspect=True)
    found = connection_strengths(network, output)
    for share, routing, strengths in zip(shares, output.branches, found, strict=True):
        coupled = routing.classes.couplings.double().numpy()  # (B, P · C, E)
        expected = share * coupled.sum(1) / SMALL.capsule_types
        total = strengths.double().sum(1)
        np.testing.assert_allclose(total, expected, atol=1e-5)


def test_states_of_a_frozen_encoder_take_no_gradient_in_training(
    encoder: PretrainedEncoder, ids: torch.Tensor
) -> None:
    network = build(encoder)
    gradients = {}
    for trains in (True, False):
        vectors = network.embedding(ids).detach().requires_grad_()
        routed = network.train(trains).route_branches(vectors, ids > 0, couplings=False)
        total = sum(each.classes.lengths.sum() for each in routed)
        (gradients[trains],) = torch.autograd.grad(total, vectors)  # type: ignore[arg-type]
    states, pieces = slice(0, -SIZE), slice(-SIZE, None)
    assert not gradients[True][..., states].any()
    assert gradients[False][..., states].any()  # which explanations may ask for
    torch.testing.assert_close(
        gradients[True][..., pieces], gradients[False][..., pieces]
    )
