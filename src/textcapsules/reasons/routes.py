r"""Where capsules were sent: from the couplings of every layer to strengths of n-grams.

A network without convolutional capsules has one routed layer. The connection strength
of n-gram p for class j is then the paper's: the coupling c_ij of its primary capsules,
averaged over the C capsules i that stand at its position (leaky softmax and amendment
included, as they were when the parents' poses were made).

With convolutional capsules an n-gram reaches the classes through the windows w that
contain it and their capsules t. Couplings are shares passed on, so they multiply along
a path and add up over paths. Over the C capsules of p and the K2 windows around it,

    strength(p, j) = 1/(C·K2) Σ_w Σ_i∈p Σ_t c_i,wt · c_wt,j

An n-gram at an end of the text lies in fewer windows, and has less to say.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from textcapsules.model.capsnet import (
    BranchRouting,
    CapsuleNetwork,
    CapsuleOutput,
    NgramBranch,
)
from textcapsules.model.layers import AttentionClasses, ClassCapsules, RoutedLayer

__all__ = [
    "Mass",
    "add_windows",
    "branches_of",
    "couplings",
    "existence",
    "has_orphan",
    "mass",
]

TINY = 1e-30  # in place of a mass of zero, to divide by


class Mass(NamedTuple):
    """What became of the coupling mass, as shares of it."""

    leak: Tensor  # (B,), sent to nobody
    orphan: Tensor  # (B,), sent to the orphan


def branches_of(network: CapsuleNetwork) -> list[NgramBranch]:
    """Return the n-gram networks, with their type."""
    return list(network.branches)  # type: ignore[arg-type]


def has_orphan(network: object) -> bool:
    """Tell whether the classes have the orphan beside them."""
    if not isinstance(network, CapsuleNetwork):
        return False
    classes = branches_of(network)[0].classes
    if isinstance(classes, AttentionClasses):
        return len(classes.query) > network.n_classes
    return classes.transform.shape[-3] > network.n_classes


def couplings(output: CapsuleOutput) -> list[Tensor]:
    """Return the connection strengths (B, P, E) in every inspected n-gram network.

    They are divided by the number of networks, so that a mean is their sum.
    """
    n_branches = len(output.branches)
    return [branch_couplings(routing) / n_branches for routing in output.branches]


def branch_couplings(routing: BranchRouting) -> Tensor:
    """Return the connection strengths (B, P, E) in one n-gram network."""
    n_types = routing.capsules.shape[2]  # C
    to_classes = routing.classes.couplings  # (B, I, E)
    if routing.conv is None:
        return to_classes.unflatten(1, (-1, n_types)).mean(2)
    to_conv = routing.conv.couplings.unflatten(2, (-1, n_types)).sum(3)  # (B, W, K, t)
    _, W, K, n_parents = to_conv.shape
    passed = to_conv @ to_classes.unflatten(1, (W, n_parents))  # (B, W, K, E)
    return add_windows(passed.unbind(2)) / (n_types * K)


def add_windows(by_place: Sequence[Tensor]) -> Tensor:
    """Add up, for every position, what it has in all its windows.

    The k-th tensor (B, W, E) holds what belongs to the k-th position of each window.
    """
    (B, W, E), K = by_place[0].shape, len(by_place)
    total = by_place[0].new_zeros(B, W + K - 1, E)  # (B, P, E)
    for place, part in enumerate(by_place):
        total[:, place : place + W] += part
    return total


def mass(network: CapsuleNetwork, output: CapsuleOutput) -> Mass:
    """Follow the coupling mass from the primary capsules to the classes.

    A primary capsule has a mass of its length (amended) or of one, in every window it
    is in. What a convolutional capsule receives it passes on in the proportions in
    which it is itself routed. Every n-gram network counts with the mass it has.
    """
    branches = zip(branches_of(network), output.branches, strict=True)
    flows = [flow(*parts) for parts in branches]
    given = torch.stack([before for before, _ in flows]).sum(0)  # (B,)
    reached = torch.stack([after for _, after in flows]).sum(0)  # (B, E)
    shares = reached / given.clamp(min=TINY).unsqueeze(1)  # an empty text has no mass
    leak = (1 - shares.sum(1)).clamp(min=0) * (given > 0)
    return Mass(leak, shares[:, network.n_classes :].sum(1))


def flow(branch: NgramBranch, routing: BranchRouting) -> tuple[Tensor, Tensor]:
    """Return the mass there was (B,) and what of it reached each class (B, E)."""
    to_classes = routing.classes.couplings  # (B, I, E)
    if routing.conv is None or branch.conv is None:
        inside = routing.mask.unsqueeze(1)  # (B, 1, P), one window
        given = given_mass(branch.classes, routing.capsules, inside)
        return given.sum(1), to_classes.sum(1)
    arrived = routing.conv.couplings.sum(2)  # (B, W, t)
    windows = routing.mask.unfold(1, branch.conv.window, 1)  # (B, W, K)
    inside = windows.all(-1)  # (B, W)
    given = given_mass(branch.conv, routing.capsules, windows & inside.unsqueeze(2))
    classes, poses = branch.classes, routing.conv.poses
    own = existence(classes, poses) * inside.unsqueeze(2)  # (B, W, t)
    if isinstance(classes, ClassCapsules) and classes.log_gain is not None:
        total = own.sum((1, 2), keepdim=True).clamp(min=TINY)
        own = classes.log_gain.exp() * own / total
    proportions = to_classes.unflatten(1, own.shape[1:])  # (B, W, t, E)
    proportions = proportions / own.clamp(min=TINY).unsqueeze(3)
    return given.sum(1), (arrived.unsqueeze(3) * proportions).sum((1, 2))


def given_mass(
    layer: RoutedLayer | AttentionClasses, capsules: Tensor, windows: Tensor
) -> Tensor:
    """Return what couplings of (B, P, C, D) add up to in windows (B, W, K), (B, W)."""
    own = existence(layer, capsules).sum(2)  # (B, P)
    given = (own.unfold(1, windows.shape[2], 1) * windows).sum(2)
    if isinstance(layer, AttentionClasses) or layer.log_gain is None:
        return given
    return layer.log_gain.exp() * (given > 0)


def existence(layer: RoutedLayer | AttentionClasses, capsules: Tensor) -> Tensor:
    """Return what the couplings of capsules (..., D) add up to if nothing leaks.

    Where weights are normalised, that is before they are.
    """
    if isinstance(layer, RoutedLayer) and layer.options.amendment:
        return torch.linalg.vector_norm(capsules, dim=-1)
    return torch.ones_like(capsules[..., 0])
