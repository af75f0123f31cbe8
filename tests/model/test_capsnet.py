"""Whole networks against NumPy loops written from the paper's equations (1)-(9).

The oracle sees one text without padding; the network sees it in a padded batch. It pins
the order of children too: by position first, by capsule type within a position.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from textcapsules.config import ModelConfig, preset
from textcapsules.model.builder import build_network
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.layers import CapsuleDropout

SMALL: dict[str, Any] = {
    "embedding_size": 5,
    "filters": 4,
    "capsule_types": 3,
    "capsule_size": 4,
    "conv_types": 2,
}
N_WORDS, N_CLASSES, MAX_TOKENS = 11, 3, 12
TOLERANCE = 1e-10  # float64: some hundred roundings of numbers near one

SQUASHES = {
    "norm": lambda x: x / (1 + x),
    "sabour": lambda x: x**2 / (1 + x**2),
    "released": lambda x: x**2 / (0.5 + x**2),
    "exp": lambda x: 1 - math.exp(-x),
    "tanh": math.tanh,
}


def g(pose: np.ndarray, kind: str) -> np.ndarray:
    norm = math.sqrt(sum(x * x for x in pose))
    return pose if kind == "none" or norm == 0 else pose / norm * SQUASHES[kind](norm)


def routing(children: list, W: np.ndarray, beta: np.ndarray | None, config) -> tuple:
    """Equations (5)-(8): votes, then couplings, parents and logits in turn."""
    H, N = len(children), W.shape[-3]
    votes = np.zeros((H, N, W.shape[-1]))
    for i, j in itertools.product(range(H), range(N)):
        own = () if W.ndim == 3 else (i,)  # the shared or the child's own matrix
        votes[i, j] = children[i] @ W[(*own, j)]
        if beta is not None:
            votes[i, j] += beta[(*own, j)]
    b, c, v = np.zeros((H, N)), np.zeros((H, N)), np.zeros((N, W.shape[-1]))
    for _ in range(config.iterations):
        for i in range(H):
            share = np.exp(b[i]) / (np.exp(b[i]).sum() + (1 if config.leaky else 0))
            c[i] = share * (np.linalg.norm(children[i]) if config.amendment else 1)
        for j in range(N):
            v[j] = g((c[:, j, None] * votes[:, j]).sum(0), config.squash)
        for i, j in itertools.product(range(H), range(N)):
            b[i, j] += votes[i, j] @ v[j]
    return v, c


def paper_branch(words: np.ndarray, weights: dict, K1: int, config) -> dict:
    """One n-gram network on word vectors (L, V), layer by layer."""
    K2 = config.conv_window if config.conv_capsules else 1
    shortest = K1 + (K2 - 1) * config.stride
    while len(words) < shortest:  # a short text is completed by zero words
        words = np.vstack([words, np.zeros(words.shape[1])])
    kernel, bias = weights["ngrams.conv.weight"], weights["ngrams.conv.bias"]
    filters = kernel.shape[0]
    features = []  # (1), (2)
    for start in range(0, len(words) - K1 + 1, config.stride):
        window = words[start : start + K1]  # (K1, V)
        sums = [(window * kernel[a].T).sum() + bias[a] for a in range(filters)]
        features.append(np.maximum(sums, 0))
    C, d = config.capsule_types, config.capsule_size
    maps = weights["primary.linear.weight"].reshape(C, d, filters)
    offsets = weights["primary.linear.bias"].reshape(C, d)
    capsules = [  # (3), (4): position by position, the types of each
        [g(maps[t] @ M + offsets[t], config.squash) for t in range(C)] for M in features
    ]
    windows = []
    if config.conv_capsules:  # (9): a window's children, position by position
        parents = []
        for start in range(len(capsules) - K2 + 1):
            children = [u for at in range(start, start + K2) for u in capsules[at]]
            v, c = routing(
                children, weights["conv.transform"], weights.get("conv.bias"), config
            )
            windows.append(c)
            parents.append(v)
        capsules = parents
    flat = [u for position in capsules for u in position]
    W, beta = weights["classes.transform"], weights.get("classes.bias")
    if W.ndim == 4:  # made for the longest text; a shorter one has the first children
        W, beta = W[: len(flat)], None if beta is None else beta[: len(flat)]
    poses, couplings = routing(flat, W, beta, config)
    return {"poses": poses, "couplings": couplings, "windows": windows}


def build(**changes: Any) -> tuple[ModelConfig, CapsuleNetwork]:
    """Build a small network in float64, every weight (biases too) drawn anew."""
    config = ModelConfig(**{**SMALL, **changes})
    network = build_network(
        config, n_words=N_WORDS, n_classes=N_CLASSES, max_tokens=MAX_TOKENS
    ).double()
    generator = torch.Generator().manual_seed(1)
    for name, weight in network.named_parameters():
        if not name.startswith("embedding"):
            # Moderate, so that logits stay in exp's range without a squash.
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.data = 0.4 * noise
    return config, network.eval()


def numpy_weights(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: w.detach().numpy() for name, w in module.named_parameters()}


def padded(texts: list[list[int]], tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.zeros(len(texts), tokens, dtype=torch.int64)
    mask = torch.zeros(len(texts), tokens, dtype=torch.bool)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = True
    return ids, mask


def close(got: torch.Tensor, want: np.ndarray, what: str) -> None:
    np.testing.assert_allclose(
        got.detach().numpy(), want, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what
    )


TEXTS = [
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3],
    [2, 7, 1, 8, 2],
    [1, 6, 1, 8],
    [7],
]
VARIANTS = [
    {"shared": shared, "orphan": orphan, "conv_capsules": conv, **rest}
    for shared, orphan, conv in itertools.product((True, False), repeat=3)
    for rest in ({}, {"transform_bias": False, "leaky": False, "amendment": False})
] + [
    {"squash": "sabour", "iterations": 1},
    {"squash": "released", "shared": False, "leaky": False},
    {"squash": "exp", "amendment": False, "iterations": 2},
    {"squash": "tanh", "iterations": 5},
    {"squash": "none", "transform_bias": False},
    {"stride": 2},
    {"stride": 2, "shared": False},
    {"conv_window": 2, "shared": False},
    {"ngram_sizes": (1,), "conv_window": 1, "shared": False},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_capsule_a_equals_the_papers_equations(changes: dict) -> None:
    sizes = {"ngram_sizes": (3,), "architecture": "capsule-a"}
    config, network = build(**{**sizes, **changes})
    output = network(*padded(TEXTS, MAX_TOKENS), inspect=True)
    (routed,) = output.branches
    weights = numpy_weights(network.branches[0])
    embedding = network.embedding.weight.detach().numpy()
    for row, text in enumerate(TEXTS):
        want = paper_branch(embedding[text], weights, config.ngram_sizes[0], config)
        lengths = np.linalg.norm(want["poses"], axis=1)
        close(output.scores[row], lengths[:N_CLASSES], f"scores of text {row}")
        close(output.lengths(orphan=True)[row], lengths, f"lengths of text {row}")
        close(routed.classes.poses[row], want["poses"], f"poses of text {row}")
        couplings = routed.classes.couplings[row]
        inside = len(want["couplings"])
        close(couplings[:inside], want["couplings"], f"couplings of text {row}")
        assert (couplings[inside:] == 0).all()  # padding does not vote
        if config.conv_capsules:
            windows = routed.conv.couplings[row]
            inside = len(want["windows"])
            close(windows[:inside], np.array(want["windows"]), f"windows of {row}")
            assert (windows[inside:] == 0).all()


@pytest.mark.parametrize("average", ["lengths", "poses"])
def test_capsule_b_averages_three_networks(average: str) -> None:
    config, network = build(average=average)
    scores = network(*padded(TEXTS, MAX_TOKENS)).lengths(orphan=True)
    embedding = network.embedding.weight.detach().numpy()
    for row, text in enumerate(TEXTS):
        poses = [
            paper_branch(embedding[text], numpy_weights(branch), K1, config)["poses"]
            for K1, branch in zip((3, 4, 5), network.branches, strict=True)
        ]
        if average == "poses":
            want = np.linalg.norm(sum(poses) / 3, axis=1)
        else:
            want = sum(np.linalg.norm(v, axis=1) for v in poses) / 3
        close(scores[row], np.asarray(want), f"text {row}")


@pytest.mark.parametrize("joint", [False, True])
def test_peaks_route_the_strongest_value_of_each_feature(joint: bool) -> None:
    config, network = build(peaks=True, conv_capsules=False, joint=joint)
    scores = network(*padded(TEXTS, MAX_TOKENS)).lengths(orphan=True)
    embedding = network.embedding.weight.detach().numpy()
    n_sizes = 1 if joint else 3
    branches: list[Any] = list(network.branches)
    assert [branch.peaks for branch in branches] == (
        [False] * n_sizes + [True] * n_sizes
    )
    for row, text in enumerate(TEXTS):
        ids, mask = padded([text], len(text))
        routed = network(ids, mask, inspect=True).branches
        lengths = [each.classes.lengths[0].detach().numpy() for each in routed]
        for branch, found in zip(branches, lengths, strict=True):
            if branch.peaks:
                words = np.vstack([embedding[text], np.zeros((5, 5))])
                words = words[: max(len(text), branch.min_tokens)]
                want = paper_peaks(words, branch, config)
                np.testing.assert_allclose(found, want, rtol=TOLERANCE)
        close(scores[row], np.mean(lengths, 0), f"text {row}")


def paper_peaks(words: np.ndarray, branch: Any, config: ModelConfig) -> np.ndarray:
    """The lengths of the classes by the strongest features of one text."""
    kernel, bias = (each.detach().numpy() for each in branch.ngrams.kernel())
    K = kernel.shape[2]
    top = [
        max(
            max((words[at : at + K] * k.T).sum() + b, 0)
            for at in range(len(words) - K + 1)
        )
        for k, b in zip(kernel, bias, strict=True)
    ]
    weights = numpy_weights(branch)
    C, d = config.capsule_types, config.capsule_size
    maps = weights["primary.linear.weight"].reshape(C, d, -1)
    offsets = weights["primary.linear.bias"].reshape(C, d)
    capsules = [
        g(m @ top + o, config.squash) for m, o in zip(maps, offsets, strict=True)
    ]
    poses, _ = routing(
        capsules, weights["classes.transform"], weights["classes.bias"], config
    )
    return np.linalg.norm(poses, axis=1)


def test_a_phrase_counts_in_full_for_peaks_however_long_the_text_is() -> None:
    _, network = build(peaks=True, conv_capsules=False, ngram_sizes=(1,))
    with torch.no_grad():
        network.embedding.weight[1] = 0  # a word that is there and says nothing
        for name, weight in network.named_parameters():
            if name.endswith("conv.bias"):
                weight.zero_()
    short, long = [3, 4], [3, *[1] * 9, 4]
    first, second = network(*padded([short, long], MAX_TOKENS), inspect=True).branches
    assert not torch.allclose(*first.classes.lengths)
    torch.testing.assert_close(*second.classes.lengths)


def test_released_reads_every_text_at_max_tokens_with_its_padding() -> None:
    config, network = build(**{**vars(preset("released").model), **SMALL})
    scores = network(*padded(TEXTS, 10)).lengths(orphan=True)
    embedding = network.embedding.weight.detach().numpy()
    assert (embedding[0] != 0).any()
    for row, text in enumerate(TEXTS):
        words = embedding[text + [0] * (MAX_TOKENS - len(text))]
        poses = [
            paper_branch(words, numpy_weights(branch), K1, config)["poses"]
            for K1, branch in zip((3, 4, 5), network.branches, strict=True)
        ]
        want = np.linalg.norm(sum(poses) / 3, axis=1)
        close(scores[row], want, f"text {row}")


def test_own_transforms_make_the_order_of_words_matter_to_the_classes() -> None:
    # With K1 = 1 and no windows, shared transforms see a bag of words.
    changes: dict[str, Any] = {"ngram_sizes": (1,), "conv_capsules": False}
    there, back = padded([[1, 2, 3, 4]], 4), padded([[4, 3, 2, 1]], 4)
    _, bag = build(architecture="capsule-a", **changes)
    torch.testing.assert_close(bag(*there).scores, bag(*back).scores)
    _, ordered = build(architecture="capsule-a", shared=False, **changes)
    assert not torch.allclose(ordered(*there).scores, ordered(*back).scores)


@pytest.mark.parametrize("shared", [True, False])
def test_every_weight_gets_a_finite_gradient(shared: bool) -> None:
    _, network = build(shared=shared)
    network(*padded([*TEXTS, []], MAX_TOKENS)).lengths(orphan=True).sum().backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert torch.isfinite(weight.grad).all(), name
        assert (weight.grad != 0).any(), name


def test_dropped_capsules_are_whole_and_the_rest_make_up_for_them() -> None:
    torch.manual_seed(0)
    dropout = CapsuleDropout(0.25)
    capsules = torch.ones(20, 30, 8, 4)
    dropped = dropout.train()(capsules)
    whole = dropped.reshape(-1, 4)
    assert torch.equal(whole.amin(1), whole.amax(1))  # all of a capsule or none of it
    kept = whole[whole[:, 0] > 0, 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 4 / 3))
    assert float((whole[:, 0] == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert torch.equal(dropout.eval()(capsules), capsules)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("text", [[4], [5, 6], [2, 3, 4, 5, 6, 7]])
def test_edges_are_words_with_zero_vectors_around_the_text(text, shared):
    changes = {**SMALL, "architecture": "capsule-a", "shared": shared}
    networks = []
    for edges, longest in ((True, MAX_TOKENS), (False, MAX_TOKENS + 4)):
        config = ModelConfig(**changes, edges=edges)
        torch.manual_seed(0)
        network = build_network(
            config, n_words=N_WORDS, n_classes=N_CLASSES, max_tokens=longest
        )
        with torch.no_grad():
            network.embedding.weight[1] = 0  # a word that is there and says nothing
        networks.append(network.double().eval())
    with_edges, without = networks
    without.load_state_dict(with_edges.state_dict())
    blanks = [1] * (with_edges.branches[0].ngrams.ngram_size - 1)
    ids = torch.tensor([text])
    around = torch.tensor([[*blanks, *text, *blanks]])
    lengths_with_edges = with_edges(ids, ids > 0).lengths(orphan=True)
    expected = without(around, around > 0).lengths(orphan=True)
    torch.testing.assert_close(lengths_with_edges, expected, atol=TOLERANCE, rtol=0)
