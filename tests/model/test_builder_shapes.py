"""Shapes and parameter counts of the paper's networks, worked out by hand.

V = 300, B = 32, C = 32, d = 16, K2 = 3, D = 16 throughout; the texts have L = 50
tokens and six classes, so E = 7 with the orphan.
"""

from typing import Any

import pytest
import torch

from textcapsules.config import ModelConfig, preset
from textcapsules.model.builder import build_network, min_tokens
from textcapsules.model.capsnet import CapsuleNetwork, NgramBranch

# K1*V*B + B
NGRAMS = {
    3: 28_832,  # 3*300*32 = 28,800, + 32
    4: 38_432,  # 4*300*32 = 38,400, + 32
    5: 48_032,  # 5*300*32 = 48,000, + 32
}
PRIMARY = 16_896  # B*C*d + C*d = 32*32*16 + 32*16 = 16,384 + 512
CONV_SHARED = 4_352  # D*d*d + D*d = 16*16*16 + 16*16 = 4,096 + 256
CONV_OWN = 417_792  # K2*C*(D*d*d + D*d) = 3*32*4,352
CLASSES_SHARED = 1_904  # E*d*d + E*d = 7*16*16 + 7*16 = 1,792 + 112
CLASSES_OWN = {  # H*1,904, H = (L-K1-K2+2)*D children
    3: 1_401_344,  # (50-3-3+2)*16 = 46*16 = 736
    4: 1_370_880,  # (50-4-3+2)*16 = 45*16 = 720
    5: 1_340_416,  # (50-5-3+2)*16 = 44*16 = 704
}


def build(n_classes: int = 6, max_tokens: int = 50, **changes: Any) -> CapsuleNetwork:
    return build_network(
        ModelConfig(**changes), n_words=9, n_classes=n_classes, max_tokens=max_tokens
    )


def counts(branch: torch.nn.Module) -> dict[str, int]:
    """Return the number of parameters of each layer of a branch."""
    return {
        name: sum(weight.numel() for weight in layer.parameters())
        for name, layer in branch.named_children()
        if not name.endswith("dropout")
    }


def n_parameters(network: CapsuleNetwork) -> int:
    return sum(weight.numel() for weight in network.branches.parameters())


def only_branch(network: CapsuleNetwork) -> NgramBranch:
    (branch,) = network.branches
    assert isinstance(branch, NgramBranch)
    return branch


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (NGRAMS[3], PRIMARY, CONV_SHARED, CLASSES_SHARED)),
        ({"shared": False}, (NGRAMS[3], PRIMARY, CONV_OWN, CLASSES_OWN[3])),
        # E = 6: 6*16*16 + 6*16 = 1,536 + 96
        ({"orphan": False}, (NGRAMS[3], PRIMARY, CONV_SHARED, 1_632)),
        ({"orphan": False, "shared": False}, (NGRAMS[3], PRIMARY, CONV_OWN, 1_201_152)),
        ({"transform_bias": False}, (NGRAMS[3], PRIMARY, 4_096, 1_792)),
        (  # 3*32*4,096 and 736*1,792
            {"transform_bias": False, "shared": False},
            (NGRAMS[3], PRIMARY, 393_216, 1_318_912),
        ),
        # Without the convolutional capsules: (50-3+1)*32 = 1,536 children, times 1,904
        (
            {"conv_capsules": False, "shared": False},
            (NGRAMS[3], PRIMARY, None, 2_924_544),
        ),
        ({"conv_capsules": False}, (NGRAMS[3], PRIMARY, None, CLASSES_SHARED)),
        # Stride 2: (50-3)//2 + 1 = 24 positions, 22 windows, 22*16*1,904
        ({"stride": 2, "shared": False}, (NGRAMS[3], PRIMARY, CONV_OWN, 670_208)),
    ],
    ids=str,
)
def test_capsule_a_has_the_parameters_worked_out_by_hand(
    changes: dict, expected: tuple
) -> None:
    branch = only_branch(build(architecture="capsule-a", **changes))
    names = ("ngrams", "primary", "conv", "classes")
    by_hand = dict(zip(names, expected, strict=True))
    assert counts(branch) == {name: n for name, n in by_hand.items() if n is not None}


def test_capsule_a_of_the_paper_has_51984_parameters() -> None:
    assert n_parameters(build(architecture="capsule-a")) == 51_984


def test_capsule_b_of_the_paper_has_184752_parameters() -> None:
    # 28,832 + 38,432 + 48,032 = 115,296, + 3*(16,896 + 4,352 + 1,904) = 69,456
    assert n_parameters(build()) == 184_752


def test_capsule_b_with_own_transforms_counts_the_children_of_each_size() -> None:
    network = build(shared=False)
    assert [counts(branch) for branch in network.branches] == [
        {
            "ngrams": NGRAMS[size],
            "primary": PRIMARY,
            "conv": CONV_OWN,
            "classes": CLASSES_OWN[size],
        }
        for size in (3, 4, 5)
    ]


def test_released_has_158304_parameters_and_its_vectors_are_fixed() -> None:
    config = preset("released").model
    network = build_network(config, n_words=9, n_classes=6, max_tokens=200)
    # C = 16, no bias on votes: 115,296
    # + 3*(32*16*16 + 16*16 = 8,448, 16*16*16 = 4,096, 7*16*16 = 1,792)
    assert n_parameters(network) == 158_304
    trainable = sum(w.numel() for w in network.parameters() if w.requires_grad)
    assert trainable == 158_304


def test_trained_vectors_add_a_row_a_word() -> None:
    network = build()
    total = sum(w.numel() for w in network.parameters() if w.requires_grad)
    assert total == 184_752 + 9 * 300


@pytest.mark.parametrize(
    ("stride", "size", "ngrams", "windows"),
    [
        (1, 3, 48, 46),  # L-K1+1 and L-K1-K2+2 of L = 50
        (1, 4, 47, 45),
        (1, 5, 46, 44),
        (2, 3, 24, 22),  # floor((50-3)/2) + 1
        (2, 4, 24, 22),
        (2, 5, 23, 21),
    ],
)
def test_positions_and_capsules_are_the_papers(
    stride: int, size: int, ngrams: int, windows: int
) -> None:
    network = build(architecture="capsule-a", ngram_sizes=(size,), stride=stride)
    ids = torch.randint(1, 9, (2, 50))
    output = network(ids, ids > 0, inspect=True)
    (routed,) = output.branches
    assert output.scores.shape == (2, 6)
    assert output.orphan.shape == (2,)
    assert routed.ngram_size == size
    assert routed.mask.shape == (2, ngrams)
    assert routed.conv.poses.shape == (2, windows, 16, 16)
    assert routed.conv.couplings.shape == (2, windows, 3 * 32, 16)
    assert routed.classes.poses.shape == (2, 7, 16)
    assert routed.classes.couplings.shape == (2, windows * 16, 7)


def test_released_positions_are_those_of_max_tokens() -> None:
    config = preset("released").model
    network = build_network(config, n_words=9, n_classes=6, max_tokens=200)
    ids = torch.randint(1, 9, (1, 50))
    output = network(ids, ids > 0, inspect=True)
    # floor((200-K1)/2) + 1 n-grams, 2 fewer windows of 16 capsules
    assert [b.mask.shape[1] for b in output.branches] == [99, 99, 98]
    children = [b.classes.couplings.shape[1] for b in output.branches]
    assert children == [97 * 16, 97 * 16, 96 * 16]


def test_without_convolutional_capsules_primary_ones_route_to_classes() -> None:
    network = build(architecture="capsule-a", conv_capsules=False)
    ids = torch.randint(1, 9, (2, 50))
    (routed,) = network(ids, ids > 0, inspect=True).branches
    assert routed.conv is None
    assert routed.classes.couplings.shape == (2, 48 * 32, 7)


def test_orphan_is_apart_from_the_scores_and_open_to_inspection() -> None:
    ids = torch.randint(1, 9, (2, 50))
    output = build()(ids, ids > 0)
    assert output.branches == ()
    assert output.lengths(orphan=False).shape == (2, 6)
    with_orphan = output.lengths(orphan=True)
    assert torch.equal(with_orphan[:, :6], output.scores)
    assert torch.equal(with_orphan[:, 6], output.orphan)


def test_without_orphan_there_is_none_to_ask_for() -> None:
    ids = torch.randint(1, 9, (2, 50))
    output = build(orphan=False)(ids, ids > 0)
    assert output.orphan is None
    assert output.lengths(orphan=True).shape == (2, 6)


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, 7),  # K1 + K2 - 1 = 5 + 3 - 1
        ({"architecture": "capsule-a"}, 5),  # 3 + 3 - 1
        ({"conv_capsules": False}, 5),  # K1 alone
        ({"stride": 2}, 9),  # three 5-grams, two words apart
    ],
    ids=str,
)
def test_max_tokens_below_one_window_is_refused(changes: dict, tokens: int) -> None:
    assert min_tokens(ModelConfig(**changes)) == tokens
    build(max_tokens=tokens, **changes)
    message = f"max_tokens must be at least {tokens} .*; got {tokens - 1}"
    with pytest.raises(ValueError, match=message):
        build(max_tokens=tokens - 1, **changes)
