"""From options to a network: every option arrives, weights start as they should."""

import typing
from dataclasses import fields, replace
from typing import Any, Literal

import pytest
import torch

from textcapsules.config import CAPSULES, ModelConfig, preset
from textcapsules.model.builder import build_network
from textcapsules.model.capsnet import CapsuleNetwork

SMALL = ModelConfig(
    ngram_sizes=(2, 3),
    embedding_size=6,
    filters=5,
    capsule_types=3,
    capsule_size=4,
    conv_types=2,
)
HINTS = typing.get_type_hints(ModelConfig)
# Another value for each option that is no choice and no switch.
OTHER: dict[str, Any] = {
    "ngram_sizes": (2, 4),
    "embedding_size": 7,
    "filters": 6,
    "stride": 2,
    "capsule_types": 4,
    "capsule_size": 5,
    "conv_window": 2,
    "conv_types": 3,
    "iterations": 2,
    "dropout": 0.5,
    "word_dropout": 0.5,
    "feature_dropout": 0.5,
    "capsule_dropout": 0.5,
    "transform_gain": 2.0,
    "routing_gain": 5.0,
}
# What else must be set for an option to matter.
NEEDS: dict[str, dict[str, Any]] = {
    "routing_gain": {"normalise": "total"},
    "learn_gain": {"normalise": "total"},
}
IDS = torch.tensor(
    [
        [1, 2, 3, 4, 5, 6, 7, 0, 0],
        [8, 1, 9, 2, 3, 4, 5, 6, 7],
        [9, 0, 0, 0, 0, 0, 0, 0, 0],  # completed by padding, which must not learn
    ]
)


def other_values(name: str) -> list[Any]:
    """Return every other choice, the other position of a switch, or OTHER's value."""
    now, hint = getattr(SMALL, name), HINTS[name]
    if name == "architecture":  # the baselines have tests of their own
        return [value for value in CAPSULES if value != now]
    if typing.get_origin(hint) is Literal:
        return [value for value in typing.get_args(hint) if value != now]
    return [not now] if hint is bool else [OTHER[name]]


# `random` differs from `non-static` in the vectors given, not in the network; pieces
# have vectors in the encoder that is given (test_capsnet_pieces.py).
FLIPS = [
    (spec.name, value)
    for spec in fields(ModelConfig)
    if spec.name != "piece_size"
    for value in other_values(spec.name)
    if (spec.name, value) != ("embeddings", "random")
]


def build(config: ModelConfig, **changes: Any) -> CapsuleNetwork:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"n_words": 10, "n_classes": 3, "max_tokens": 12}
    network = build_network(config, **{**settings, **changes})
    assert isinstance(network, CapsuleNetwork)
    return network


def behaviour(config: ModelConfig) -> list[tuple[str, Any]]:
    """Return everything a user could see of a network, seeded, as plain values."""
    network = build(config)
    seen: list[tuple[str, Any]] = [
        (name, (weight.requires_grad, weight.tolist()))
        for name, weight in network.named_parameters()
    ]
    for training in (False, True):
        torch.manual_seed(1)
        output = network.train(training)(IDS, IDS > 0)
        seen.append((f"training {training}", output.lengths(orphan=True).tolist()))
    return seen


@pytest.mark.parametrize(("name", "value"), FLIPS, ids=str)
def test_every_option_reaches_the_network(name: str, value: Any) -> None:
    base = replace(SMALL, **NEEDS.get(name, {}))
    assert behaviour(replace(base, **{name: value})) != behaviour(base)


@pytest.mark.parametrize("name", NEEDS)
def test_an_option_alone_changes_nothing_where_it_needs_another(name: str) -> None:
    (value,) = other_values(name)
    assert behaviour(replace(SMALL, **{name: value})) == behaviour(SMALL)


def test_behaviour_of_one_configuration_repeats() -> None:
    assert behaviour(SMALL) == behaviour(SMALL)  # so a difference above is the option's


def test_choices_of_one_option_all_differ() -> None:
    for name in ("squash", "average", "initialiser"):
        outputs = [
            str(behaviour(replace(SMALL, **{name: value})))
            for value in typing.get_args(HINTS[name])
        ]
        assert len(set(outputs)) == len(outputs), name


PAPER_SIZES = ModelConfig(architecture="capsule-a")
LIMITS = {  # sqrt(6 / (fan in + fan out)) for V = 300, B = C = 32, d = 16, E = 7
    "xavier": {
        "ngrams.conv.weight": 0.0776,  # 3*300 in, 3*32 out
        "primary.linear.weight": 0.1050,  # 32 in, 32*16 out
        "conv.transform": 0.4330,  # 16 in, 16 out
        "classes.transform": 0.4330,
    },
    "tensorflow": {
        "ngrams.conv.weight": 0.0142,  # 3*300 in, 3*300*32 out: one channel
        "primary.linear.weight": 0.1050,
        "conv.transform": 0.1485,  # 16 in, 16*16 out
        "classes.transform": 0.2165,  # 16 in, 7*16 out
    },
}


@pytest.mark.parametrize("initialiser", LIMITS)
@pytest.mark.parametrize("shared", [True, False])
def test_weights_fill_their_limits_evenly(initialiser: str, shared: bool) -> None:
    config = replace(PAPER_SIZES, initialiser=initialiser, shared=shared)
    (branch,) = build(config, n_classes=6).branches
    weights = dict(branch.named_parameters())
    for name, limit in LIMITS[initialiser].items():
        weight = weights[name].detach()
        rounding = 5e-5  # the limits above have four decimals
        assert 0.98 * limit < weight.abs().max() <= limit + rounding, name
        # A uniform variable's deviation; 1,792 draws or more leave it 4 % at most.
        assert weight.std() == pytest.approx(limit / 3**0.5, rel=0.04), name


@pytest.mark.parametrize("initialiser", LIMITS)
def test_biases_start_at_zero(initialiser: str) -> None:
    network = build(replace(SMALL, initialiser=initialiser))
    biases = [w for name, w in network.named_parameters() if name.endswith("bias")]
    assert len(biases) == 2 * 4  # two n-gram sizes of four layers
    assert all((bias == 0).all() for bias in biases)


def test_one_seed_gives_the_same_weights_and_another_gives_others() -> None:
    settings: dict[str, Any] = {"n_words": 10, "n_classes": 3, "max_tokens": 12}
    networks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        networks.append(build_network(SMALL, **settings).state_dict())
    one, again, other = networks
    for name, weight in one.items():
        assert torch.equal(weight, again[name]), name
        if not name.endswith("bias"):
            assert not torch.equal(weight, other[name]), name


def train_once(network: CapsuleNetwork) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=0.1)
    network(IDS, IDS > 0).lengths(orphan=True).sum().backward()
    optimiser.step()


@pytest.mark.parametrize("embeddings", ["random", "non-static"])
def test_trained_vectors_move_but_padding_stays_zero(embeddings: str) -> None:
    network = build(replace(SMALL, embeddings=embeddings))
    before = network.embedding.weight.detach().clone()
    assert (before[0] == 0).all()
    assert before[1:].abs().max() <= 0.25
    train_once(network)
    after = network.embedding.weight.detach()
    assert (after[0] == 0).all()
    assert (after[1:] != before[1:]).any(1).all()


def test_static_vectors_stay_as_given_while_the_rest_moves() -> None:
    vectors = torch.randn(10, 6)
    network = build(replace(SMALL, embeddings="static"), vectors=vectors)
    kernel = next(network.branches.parameters())
    before = kernel.detach().clone()
    train_once(network)
    assert not torch.equal(kernel, before)
    assert not network.embedding.weight.requires_grad
    assert torch.equal(network.embedding.weight[1:], vectors[1:])


def test_given_vectors_set_the_embedding_size_and_are_not_trained_in_place() -> None:
    vectors = torch.randn(10, 9)
    given = vectors.clone()
    network = build(SMALL, vectors=vectors)
    assert torch.equal(network.embedding.weight[1:], vectors[1:])
    train_once(network)
    assert torch.equal(vectors, given)


def test_released_padding_is_a_random_word_that_gets_a_vote() -> None:
    config = replace(preset("released").model, **{**OTHER, "dropout": 0.0})
    network = build(config)
    row = network.embedding.weight[0]
    assert (row != 0).all()
    assert row.abs().max() <= 0.25
    trained = build(replace(config, embeddings="non-static"))
    trained(IDS, IDS > 0).scores.sum().backward()
    assert trained.embedding.weight.grad is not None
    assert (trained.embedding.weight.grad[0] != 0).any()


def test_dropout_drops_entries_of_word_vectors_in_training_only() -> None:
    network = build(replace(SMALL, dropout=0.5))
    one, two = network(IDS, IDS > 0).scores, network(IDS, IDS > 0).scores
    assert not torch.allclose(one, two)
    network.eval()
    one, two = network(IDS, IDS > 0).scores, network(IDS, IDS > 0).scores
    assert torch.equal(one, two)
