"""What the routing of a capsule network says about n-grams.

**Couplings: where capsules were sent.** A network without convolutional capsules has
one routed layer. The connection strength of n-gram p for class j is then the paper's:
the coupling c_ij of its primary capsules, averaged over the C capsules i that stand at
its position (leaky softmax and amendment included, as they were when the parents' poses
were made).

With convolutional capsules an n-gram reaches the classes through the windows w that
contain it and their capsules t. Couplings are shares passed on, so they multiply along
a path and add up over paths. Over the C capsules of p and the K2 windows around it,

    strength(p, j) = 1/(C·K2) Σ_w Σ_i∈p Σ_t c_i,wt · c_wt,j

An n-gram at an end of the text lies in fewer windows, so it is weaker.

A network of peaks has capsules of the whole text, made of the strongest value of every
feature. What such capsules are sent or say is shared by the n-grams at which features
are strongest, in proportion to those values.

**Contributions: what capsules said there.** The pose of a parent is v_j = g_j s_j with
s_j = Σ_i c_ij û_j|i and the squash's gain g_j = |v_j| / |s_j|. With v̂_j = v_j / |v_j|,

    |v_j| = v_j · v̂_j = Σ_i g_j c_ij (û_j|i · v̂_j)

and the i-th term is what child i adds to, or takes from, the length of the class: exact
for the couplings and gains that routing ended with. A convolutional capsule is such a
sum itself, v_wt = Σ_i g_wt c_i,wt û_wt|i. Put in its place, each term becomes a child
of its own: it votes W_j (g_wt c_i,wt û_wt|i) and has the share c_i,wt / Σ_i c_i,wt of
the bias β_j. So the contributions of all n-grams add up to the length.

Where capsule-b averages lengths, the contributions in each of its N networks are
divided by N; where it averages poses, v̂_j is the direction of the mean pose, v̄_j · v̂_j
being |v̄_j|. Both ways they add up to the score.

Attention scores a class by a logit, w_j · LN(z_j) + b_j + α log m_j, with the mean
z_j = Σ_i c_ij x_i / m_j of values x_i = W u_i + β. LN divides by the deviation σ_j of
z_j; with σ_j and m_j as they are, the first term is a sum over children again: child i
adds c_ij / m_j (x_i · d_j), d_j = (w_j γ - mean of w_j γ) / σ_j, γ being LN's scale.
These are parts of the logit; what b_j, LN's shift and the mass add is no child's. The
orphan has no logit: its contributions are the shares of children that add up to it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, einsum
from torch.linalg import vector_norm

from textcapsules.model.capsnet import (
    BranchRouting,
    CapsuleNetwork,
    CapsuleOutput,
    NgramBranch,
)
from textcapsules.model.layers import (
    AttentionLayer,
    CapsuleLayer,
    ConvCapsules,
    RoutedLayer,
)
from textcapsules.model.routing.attention import MASS_EPSILON

__all__ = [
    "Mass",
    "Pull",
    "branch_contributions",
    "branches_of",
    "by_ngram",
    "class_pulls",
    "connection_strengths",
    "contributions",
    "existence",
    "has_orphan",
    "mass",
]

TINY = 1e-30  # in place of a mass of zero, to divide by


class Mass(NamedTuple):
    """Which shares of the coupling mass reached no label."""

    leak: Tensor  # (B,), sent to nobody
    orphan: Tensor  # (B,), sent to the orphan


def branches_of(network: CapsuleNetwork) -> list[NgramBranch]:
    """Return the n-gram networks, typed."""
    return list(network.branches)  # type: ignore[arg-type]


def has_orphan(network: object) -> bool:
    """Tell whether a network has an orphan beside its classes."""
    if not isinstance(network, CapsuleNetwork):
        return False
    classes = branches_of(network)[0].classes
    if isinstance(classes, AttentionLayer):
        return len(classes.query) > network.n_classes
    return classes.transform.shape[-3] > network.n_classes


def connection_strengths(
    network: CapsuleNetwork, output: CapsuleOutput
) -> list[Tensor]:
    """Return the connection strengths (B, P, E) in every inspected n-gram network.

    They have the networks' shares in the average, so that their sum is one too.
    """
    return [
        by_ngram(routing, branch_couplings(routing)) * share
        for routing, share in zip(output.branches, network.branch_shares(), strict=True)
    ]


def by_ngram(routing: BranchRouting, values: Tensor) -> Tensor:
    """Share the values of peaks (B, 1, E) among n-grams (B, P, E)."""
    if routing.peaks is None:
        return values
    strengths, places, n_positions = routing.peaks
    at = strengths.new_zeros(len(strengths), n_positions)
    at.scatter_add_(1, places, strengths)  # (B, P)
    # A text without a single feature shares with its first n-gram.
    at[:, 0] += at.sum(1) == 0
    return values * (at / at.sum(1, keepdim=True)).unsqueeze(2)


def branch_couplings(routing: BranchRouting) -> Tensor:
    """Return the connection strengths (B, P, E) in one n-gram network.

    Those of peaks are (B, 1, E).
    """
    n_types = routing.capsules.shape[2]  # C
    to_classes = routing.classes.couplings  # (B, I, E)
    if routing.conv is None:
        return to_classes.unflatten(1, (-1, n_types)).mean(2)
    to_conv = routing.conv.couplings.unflatten(2, (-1, n_types)).sum(3)  # (B, W, K, t)
    _, W, K, n_parents = to_conv.shape
    passed = to_conv @ to_classes.unflatten(1, (W, n_parents))  # (B, W, K, E)
    return add_windows(passed.unbind(2)) / (n_types * K)


def add_windows(by_place: Sequence[Tensor]) -> Tensor:
    """Add up the values of every position over all its windows.

    The k-th tensor (B, W, E) holds the values of the k-th position of each window.
    """
    (B, W, E), K = by_place[0].shape, len(by_place)
    total = by_place[0].new_zeros(B, W + K - 1, E)  # (B, P, E)
    for place, part in enumerate(by_place):
        total[:, place : place + W] += part
    return total


def mass(network: CapsuleNetwork, output: CapsuleOutput) -> Mass:
    """Follow the coupling mass from the primary capsules to the classes.

    A primary capsule has, in every window that contains it, a mass of its length
    (amended) or of one. A convolutional capsule passes on what it receives in the
    proportions in which it is itself routed. The masses of all n-gram networks are
    added up.
    """
    branches = zip(branches_of(network), output.branches, strict=True)
    flows = [flow(*parts) for parts in branches]
    given = torch.stack([before for before, _ in flows]).sum(0)  # (B,)
    reached = torch.stack([after for _, after in flows]).sum(0)  # (B, E)
    shares = reached / given.clamp(min=TINY).unsqueeze(1)  # an empty text has no mass
    leak = (1 - shares.sum(1)).clamp(min=0) * (given > 0)
    return Mass(leak, shares[:, network.n_classes :].sum(1))


def flow(branch: NgramBranch, routing: BranchRouting) -> tuple[Tensor, Tensor]:
    """Return the mass given (B,) and how much of it reached each class (B, E)."""
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
    passed = existence(classes, poses) * inside.unsqueeze(2)  # (B, W, t)
    if isinstance(classes, CapsuleLayer) and classes.log_gain is not None:
        total = passed.sum((1, 2), keepdim=True).clamp(min=TINY)
        passed = classes.log_gain.exp() * passed / total
    proportions = to_classes.unflatten(1, passed.shape[1:])  # (B, W, t, E)
    proportions = proportions / passed.clamp(min=TINY).unsqueeze(3)
    return given.sum(1), (arrived.unsqueeze(3) * proportions).sum((1, 2))


def given_mass(
    layer: RoutedLayer | AttentionLayer, capsules: Tensor, windows: Tensor
) -> Tensor:
    """Return the sum (B, W) of the couplings of (B, P, C, D) in windows (B, W, K)."""
    by_position = existence(layer, capsules).sum(2)  # (B, P)
    given = (by_position.unfold(1, windows.shape[2], 1) * windows).sum(2)
    if isinstance(layer, AttentionLayer) or layer.log_gain is None:
        return given
    return layer.log_gain.exp() * (given > 0)


def existence(layer: RoutedLayer | AttentionLayer, capsules: Tensor) -> Tensor:
    """Return the sum of each capsule's couplings if nothing leaks, of (..., D).

    Where weights are normalised, it is the sum before that.
    """
    if isinstance(layer, RoutedLayer) and layer.options.amendment:
        return torch.linalg.vector_norm(capsules, dim=-1)
    return torch.ones_like(capsules[..., 0])


def contributions(network: CapsuleNetwork, output: CapsuleOutput) -> list[Tensor]:
    """Return what every n-gram adds to every length, (B, P, E) per n-gram network."""
    branches = zip(branches_of(network), output.branches, strict=True)
    pulls = class_pulls(network, output)
    return [
        by_ngram(routing, branch_contributions(branch, routing, pull))
        for (branch, routing), pull in zip(branches, pulls, strict=True)
    ]


class Pull(NamedTuple):
    """What a child u_i of the classes gives: coupled_ij (u_i · towards_j + bias_j)."""

    towards: Tensor  # (B, D, E), or (B, I, D, E) of a transform that is not shared
    bias: Tensor  # (B, 1, E) or (B, I, E)
    coupled: Tensor  # (B, I, E)


def class_pulls(network: CapsuleNetwork, output: CapsuleOutput) -> list[Pull]:
    """Return how each n-gram network's capsules move the classes, routing as it is."""
    branches, routed = branches_of(network), output.branches
    if isinstance(branches[0].classes, AttentionLayer):
        pairs = zip(branches, routed, strict=True)
        return [attention_pull(*pair, len(branches)) for pair in pairs]
    poses = torch.stack([routing.classes.poses for routing in routed])  # (N, B, E, H)
    if network.average == "poses":
        poses = poses.mean(0, keepdim=True).expand_as(poses)
    shares = poses.new_tensor(network.branch_shares())[:, None, None]  # (N, 1, 1)
    directions = poses * ratio(shares, vector_norm(poses, dim=-1))[..., None]
    pulls = []
    for branch, routing, direction in zip(branches, routed, directions, strict=True):
        layer, coupled = branch.classes, routing.classes.couplings
        assert isinstance(layer, CapsuleLayer)
        children = routing.capsules if routing.conv is None else routing.conv.poses
        total = sum_votes(layer, children.flatten(1, 2), coupled)  # s, (B, E, H)
        gains = ratio(routing.classes.lengths, vector_norm(total, dim=-1))  # g, (B, E)
        scaled = direction * gains.unsqueeze(-1)
        pulls.append(Pull(*pull_back(layer, scaled, coupled.shape[1]), coupled))
    return pulls


def attention_pull(branch: NgramBranch, routing: BranchRouting, n: int) -> Pull:
    """Return how capsules move the logits that n networks average."""
    layer, (poses, _, coupled, _) = branch.classes, routing.classes
    assert isinstance(layer, AttentionLayer)
    scaled = layer.weight * layer.norm.weight  # w γ, (J, H)
    centred = scaled - scaled.mean(1, keepdim=True)
    deviation = poses[:, : layer.n_out].var(2, correction=0) + layer.norm.eps  # σ²
    directions = centred / deviation.sqrt().unsqueeze(-1) / n  # d, (B, J, H)
    if len(layer.query) > layer.n_out:  # the orphan, which no capsule's pose moves
        directions = torch.cat([directions, torch.zeros_like(directions[:, :1])], 1)
    towards = einsum("bjh,hd->bdj", directions, layer.value.weight)
    bias = (directions @ layer.value.bias).unsqueeze(1)
    mass = coupled.sum(1, keepdim=True) + MASS_EPSILON
    return Pull(towards, bias, coupled / mass)


def branch_contributions(
    branch: NgramBranch, routing: BranchRouting, pull: Pull
) -> Tensor:
    """Return what every n-gram of one network adds to the classes, (B, P, E).

    Peaks add (B, 1, E) together. It is linear in the capsules, whose derivative
    `word_contributions` takes.
    """
    capsules, (pulled, from_bias, coupled) = routing.capsules, pull
    if branch.conv is None or routing.conv is None:
        along = project(capsules.flatten(1, 2), pulled) + from_bias  # (B, I, E)
        given = (along * coupled).unflatten(1, capsules.shape[1:3]).sum(2)
        return with_orphan(branch, routing, given)
    sums, amounts = split_sums(branch.conv, capsules, routing.conv.couplings)
    norms = vector_norm(sums.sum(2), dim=-1).detach()
    inner = ratio(routing.conv.lengths, norms)  # gains of the windows, (B, W, t)
    if pulled.ndim == 4:  # one per child of the classes: the same for its K parts
        pulled = pulled.unflatten(1, inner.shape[1:]).unsqueeze(2)
        pulled = pulled.expand(-1, -1, sums.shape[2], -1, -1, -1).flatten(1, 3)
    along = project(sums.flatten(1, 3), pulled).unflatten(1, sums.shape[1:4])
    scaled = coupled * inner.flatten(1).unsqueeze(-1)  # (B, I, E)
    by_place = (along * scaled.unflatten(1, inner.shape[1:]).unsqueeze(2)).sum(3)
    shares = ratio(amounts, amounts.sum(2, keepdim=True))  # of a bias, (B, W, K, t)
    biases = (coupled * from_bias).unflatten(1, inner.shape[1:])  # (B, W, t, E)
    by_place = by_place + shares @ biases  # (B, W, K, E)
    return with_orphan(branch, routing, add_windows(by_place.unbind(2)))


def with_orphan(branch: NgramBranch, routing: BranchRouting, given: Tensor) -> Tensor:
    """Put the orphan's shares of the couplings into the last column, for attention."""
    layer = branch.classes
    if not isinstance(layer, AttentionLayer) or len(layer.query) == layer.n_out:
        return given
    shares = branch_couplings(routing)[..., layer.n_out :]
    n_inside = routing.mask.sum(1).clamp(min=1)[:, None, None]
    return torch.cat([given[..., : layer.n_out], shares / n_inside], -1)


def sum_votes(layer: RoutedLayer, children: Tensor, coupled: Tensor) -> Tensor:
    """Return s_j = Σ_i c_ij û_j|i, (B, J, H), of children (B, I, D)."""
    transform, bias, n = layer.transform, layer.bias, children.shape[1]
    if transform.ndim == 4:
        total = einsum("bij,bid,ijdh->bjh", coupled, children, transform[:n])
        from_bias = None if bias is None else einsum("bij,ijh->bjh", coupled, bias[:n])
    else:
        total = einsum("bjd,jdh->bjh", coupled.mT @ children, transform)
        from_bias = None if bias is None else coupled.sum(1).unsqueeze(-1) * bias
    return total if from_bias is None else total + from_bias


def pull_back(
    layer: RoutedLayer, directions: Tensor, n_children: int
) -> tuple[Tensor, Tensor]:
    """Take the parents' directions (B, J, H) back into the space of the children.

    Returns:
        Wᵀ direction, (B, D, J) or (B, I, D, J) of a transform that is not shared, and
        β · direction, (B, 1, J) or (B, I, J).
    """
    transform, bias = layer.transform, layer.bias
    if transform.ndim == 4:
        pulled = einsum("ijdh,bjh->bidj", transform[:n_children], directions)
        if bias is not None:
            return pulled, einsum("ijh,bjh->bij", bias[:n_children], directions)
    else:
        pulled = einsum("jdh,bjh->bdj", transform, directions)
        if bias is not None:
            return pulled, einsum("jh,bjh->bj", bias, directions).unsqueeze(1)
    return pulled, torch.zeros_like(directions[:, None, :, 0])


def project(children: Tensor, pulled: Tensor) -> Tensor:
    """Return (W u_i) · direction_j, (B, I, J), of children (B, I, D)."""
    if pulled.ndim == 4:
        return einsum("bid,bidj->bij", children, pulled)
    return children @ pulled


def split_sums(
    layer: ConvCapsules, capsules: Tensor, couplings: Tensor
) -> tuple[Tensor, Tensor]:
    """Split the sums s_wt of convolutional capsules by the positions they come from.

    Returns:
        Σ_c c_i,wt û_wt|i, (B, W, K, t, H), and Σ_c c_i,wt, (B, W, K, t).
    """
    lead = (layer.window, capsules.shape[2])
    coupled = couplings.unflatten(2, lead)  # (B, W, K, C, t)
    windows = capsules.unfold(1, layer.window, 1)  # (B, W, C, D, K)
    amounts, bias = coupled.sum(3), layer.bias
    if layer.transform.ndim == 4:
        transform = layer.transform.unflatten(0, lead)
        sums = einsum("bwkcj,bwcdk,kcjdh->bwkjh", coupled, windows, transform)
        if bias is not None:
            sums += einsum("bwkcj,kcjh->bwkjh", coupled, bias.unflatten(0, lead))
    else:
        sums = einsum("bwkcj,bwcdk->bwkjd", coupled, windows)
        sums = einsum("bwkjd,jdh->bwkjh", sums, layer.transform).contiguous()
        if bias is not None:
            sums += amounts.unsqueeze(-1) * bias
    return sums, amounts


def ratio(part: Tensor | float, whole: Tensor) -> Tensor:
    """Divide; zero over zero is zero."""
    return part / whole.clamp(min=torch.finfo(whole.dtype).tiny) * (whole > 0)
