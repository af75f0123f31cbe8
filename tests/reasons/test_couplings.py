"""Strengths of n-grams against plain loops over paths, one text without padding."""

import itertools
import math

import numpy as np
import pytest
import torch

from random_models import ARCHITECTURES, random_network
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.layers import AttentionLayer
from textcapsules.reasons.couplings import (
    branches_of,
    connection_strengths,
    contributions,
    mass,
)

TOLERANCE = 1e-10  # float64
N_TOKENS = 9
options = pytest.mark.parametrize("options", ARCHITECTURES.values(), ids=ARCHITECTURES)
BY_AGREEMENT = {
    name: model for name, model in ARCHITECTURES.items() if "routing" not in model
}
agreeing = pytest.mark.parametrize(
    "options", BY_AGREEMENT.values(), ids=BY_AGREEMENT.keys()
)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def one_text(network: CapsuleNetwork) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(2, 20, (1, N_TOKENS))
    return ids, torch.ones_like(ids, dtype=torch.bool)


def vote(layer, child: int, parent: int, pose: np.ndarray, share: float = 1.0):
    """W u + share of β, by the paper's equation, for one child and one parent."""
    transform, bias = layer.transform.numpy(), layer.bias
    own = transform[child, parent] if transform.ndim == 4 else transform[parent]
    if bias is None:
        return pose @ own
    beta = bias.numpy()
    return pose @ own + share * (
        beta[child, parent] if beta.ndim == 3 else beta[parent]
    )


def spread(branch, network: CapsuleNetwork, ids: torch.Tensor, values: np.ndarray):
    """Share the values (1, E) of peaks by what the strongest features stand at."""
    if not branch.peaks:
        return values
    vectors = network.embedding(ids)
    edge = vectors.new_zeros(1, branch.edge, vectors.shape[2])
    features = branch.ngrams(torch.cat([edge, vectors, edge], 1))[0][0].numpy()
    at = np.zeros(len(features))
    for feature in features.T:
        at[int(feature.argmax())] += feature.max()
    return np.outer(at / at.sum(), values[0])


def windows_of(branch, n_grams: int) -> range:
    return range(n_grams - branch.conv.window + 1)


@options
def test_couplings_are_those_of_all_paths(options):
    network = random_network(**options)
    ids, mask = one_text(network)
    output = network(ids, mask, inspect=True)
    found = connection_strengths(network, output)
    for branch, routing, strengths in zip(
        branches_of(network), output.branches, found, strict=True
    ):
        _, P, C, _ = routing.capsules.shape
        to_classes = routing.classes.couplings[0]
        expected = np.zeros((P, to_classes.shape[1]))
        for p, c, j in itertools.product(range(P), range(C), range(expected.shape[1])):
            if branch.conv is None or routing.conv is None:
                expected[p, j] += to_classes[p * C + c, j] / C
                continue
            K = branch.conv.window
            to_conv = routing.conv.couplings[0]
            for w in windows_of(branch, P):
                if w <= p < w + K:
                    for t in range(to_conv.shape[2]):
                        reached = to_conv[w, (p - w) * C + c, t]
                        passed = to_classes[w * to_conv.shape[2] + t, j]
                        expected[p, j] += reached * passed / (C * K)
        expected = spread(branch, network, ids, expected) / len(network.branches)
        np.testing.assert_allclose(strengths[0].numpy(), expected, atol=TOLERANCE)


@agreeing
def test_contributions_are_those_of_all_paths(options):
    network = random_network(**options)
    ids, mask = one_text(network)
    output = network(ids, mask, inspect=True)
    branches = branches_of(network)
    poses = [routing.classes.poses[0].numpy() for routing in output.branches]
    mean_pose = np.mean(poses, 0)
    for branch, routing, strengths, own in zip(
        branches,
        output.branches,
        contributions(network, output),
        poses,
        strict=True,
    ):
        capsules = routing.capsules
        pointed = mean_pose if network.average == "poses" else own
        directions = pointed / np.linalg.norm(pointed, axis=1, keepdims=True)
        children = (capsules if routing.conv is None else routing.conv.poses)[0].numpy()
        to_classes = routing.classes.couplings[0].numpy()
        flat = children.reshape(-1, children.shape[-1])
        expected = np.zeros((capsules.shape[1], len(own)))
        for j in range(len(own)):
            total = sum(
                to_classes[i, j] * vote(branch.classes, i, j, pose)
                for i, pose in enumerate(flat)
            )
            gain = np.linalg.norm(own[j]) / np.linalg.norm(total)
            for p, i, pose, share in parts(branch, routing, capsules[0].numpy()):
                said = vote(branch.classes, i, j, pose, share) @ directions[j]
                expected[p, j] += gain * to_classes[i, j] * said / len(branches)
        expected = spread(branch, network, ids, expected)
        np.testing.assert_allclose(strengths[0].numpy(), expected, atol=TOLERANCE)


def parts(branch, routing, capsules):
    """Yield the position, child number, pose and share of what reaches the classes."""
    P, C, _ = capsules.shape
    if branch.conv is None:
        for p, c in itertools.product(range(P), range(C)):
            yield p, p * C + c, capsules[p, c], 1.0
        return
    to_conv = routing.conv.couplings[0].numpy()
    n_types = to_conv.shape[2]
    for w, t in itertools.product(windows_of(branch, P), range(n_types)):
        votes = {
            (k, c): to_conv[w, k * C + c, t]
            * vote(branch.conv, k * C + c, t, capsules[w + k, c])
            for k, c in itertools.product(range(branch.conv.window), range(C))
        }
        total = sum(votes.values())
        gain = routing.conv.lengths[0, w, t].item() / np.linalg.norm(total)
        amount = to_conv[w, :, t].sum()
        for (k, c), coupled in votes.items():
            share = to_conv[w, k * C + c, t] / amount
            yield w + k, w * n_types + t, gain * coupled, share


@agreeing
def test_contributions_add_up_to_the_lengths_in_a_padded_batch(options):
    network = random_network(**options)
    mask = torch.arange(12) < torch.tensor([[12], [7], [3], [1], [0]])
    ids = torch.randint(2, 20, mask.shape) * mask
    output = network(ids, mask, inspect=True)
    total = sum(part.sum(1) for part in contributions(network, output))
    expected = output.lengths(orphan=True)
    torch.testing.assert_close(total, expected, atol=TOLERANCE, rtol=0)


def weights(layer, capsules) -> np.ndarray:
    """What the couplings of one window's children sum to if nothing leaks."""
    if isinstance(layer, AttentionLayer) or not layer.options.amendment:
        own = np.ones(capsules.shape[:-1])
    else:
        own = np.linalg.norm(capsules, axis=-1)
    if isinstance(layer, AttentionLayer) or layer.options.normalise == "none":
        return own
    return own / own.sum() * math.exp(layer.log_gain.item())


@options
def test_mass_is_followed_along_all_paths(options):
    network = random_network(**options)
    output = network(*one_text(network), inspect=True)
    given, reached = 0.0, np.zeros(network.n_classes + options.get("orphan", True))
    for branch, routing in zip(branches_of(network), output.branches, strict=True):
        capsules = routing.capsules[0].numpy()
        to_classes = routing.classes.couplings[0].numpy()
        if branch.conv is None or routing.conv is None:
            given += weights(branch.classes, capsules).sum()
            reached += to_classes.sum(0)
            continue
        to_conv = routing.conv.couplings[0].numpy()
        n_types = to_conv.shape[2]
        own = weights(branch.classes, routing.conv.poses[0].numpy())
        for w in windows_of(branch, len(capsules)):
            window = capsules[w : w + branch.conv.window]
            given += weights(branch.conv, window).sum()
            for t in range(n_types):
                arrived = to_conv[w, :, t].sum()
                reached += arrived * to_classes[w * n_types + t] / own[w, t]
    found = mass(network, output)
    assert found.leak.item() == pytest.approx(1 - reached.sum() / given, abs=1e-9)
    orphan = reached[network.n_classes :].sum() / given
    assert found.orphan.item() == pytest.approx(orphan, abs=1e-9)
    if not options.get("leaky", True):
        assert abs(found.leak.item()) < 1e-9 or "routing" in options


def test_an_empty_text_has_no_mass():
    network = random_network()
    nothing = torch.zeros(1, 4, dtype=torch.int64)
    found = mass(network, network(nothing, nothing.bool(), inspect=True))
    assert (found.leak.item(), found.orphan.item()) == (0, 0)


def test_primary_capsules_are_what_the_layers_make():
    network = random_network(capsule_dropout=0.5)
    ids, mask = one_text(network)
    output = network(ids, mask, inspect=True)
    for branch, routing in zip(branches_of(network), output.branches, strict=True):
        features, inside = branch.ngrams(network.embedding(ids), mask)
        torch.testing.assert_close(routing.capsules, branch.primary(features))
        assert torch.equal(routing.mask, inside)
