"""What capsules said where they were sent: every n-gram's part of a class's length.

The pose of a parent is v_j = g_j s_j with s_j = Σ_i c_ij û_j|i and the squash's gain
g_j = |v_j| / |s_j|. With v̂_j = v_j / |v_j|,

    |v_j| = v_j · v̂_j = Σ_i g_j c_ij (û_j|i · v̂_j)

and the i-th term is what child i adds to, or takes from, the length of the class: exact
for the couplings and gains that routing ended with. A convolutional capsule is such a
sum itself, v_wt = Σ_i g_wt c_i,wt û_wt|i. Put in its place, each term becomes a child
of its own: it votes W_j (g_wt c_i,wt û_wt|i) and has the share c_i,wt / Σ_i c_i,wt of
the bias β_j. So the contributions of all n-grams add up to the length.

Where capsule-b averages lengths, the contributions in each of its N networks are
divided by N; where it averages poses, v̂_j is the direction of the mean pose, v̄_j · v̂_j
being |v̄_j|. Both ways they add up to the score.

Strengths of tokens from gradients: the usual rivals of reading the couplings.

Gradient times input is x_t · ∂a_j/∂x_t for the word vector x_t: how the length a_j of a
class would change, to first order, if the word faded. Integrated gradients
(Sundararajan et al., 2017) average that gradient along the way from zero vectors to the
text's, so that the strengths add up to a_j(text) - a_j(zero vectors), up to the error
of the sum. A network without capsules has its logit in place of a length: its scores
are flat where it is sure.

The plain truth: delete an n-gram, predict again, and see how far a length falls.

Deleting takes the words out of the text, whose rest closes up, as a reader would do it
and as the model may meet it. It needs one prediction an n-gram, so it is slow.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, einsum, nn
from torch.linalg import vector_norm

from textcapsules.model.builder import System
from textcapsules.model.capsnet import (
    BranchRouting,
    CapsuleNetwork,
    CapsuleOutput,
    NgramBranch,
)
from textcapsules.model.layers import ClassCapsules, ConvCapsules, RoutedLayer
from textcapsules.model.score import drop_unreadable, score_documents
from textcapsules.reasons.networks import device_of
from textcapsules.reasons.routes import add_windows, branches_of
from textcapsules.text.batch import epoch_batches, make_batch

__all__ = [
    "STEPS",
    "contributions",
    "document_lengths",
    "erase_ngrams",
    "gradient_times_input",
    "integrated_gradients",
]


def contributions(network: CapsuleNetwork, output: CapsuleOutput) -> list[Tensor]:
    """Return what every n-gram adds to every length, (B, P, E) a network."""
    branches, routed = branches_of(network), output.branches
    poses = torch.stack([routing.classes.poses for routing in routed])  # (N, B, E, H)
    if network.average == "poses":
        poses = poses.mean(0, keepdim=True).expand_as(poses)
    directions = poses * ratio(1 / len(branches), vector_norm(poses, dim=-1))[..., None]
    return [
        branch_contributions(*parts)
        for parts in zip(branches, routed, directions, strict=True)
    ]


def branch_contributions(
    branch: NgramBranch, routing: BranchRouting, directions: Tensor
) -> Tensor:
    """Return Σ g_j c_ij (û_j|i · direction_j), (B, P, E), in one n-gram network."""
    capsules, coupled = routing.capsules, routing.classes.couplings  # (B, I, E)
    children = capsules if routing.conv is None else routing.conv.poses
    classes = branch.classes
    assert isinstance(classes, ClassCapsules)  # attention is not asked (`methods_of`)
    total = sum_votes(classes, children.flatten(1, 2), coupled)  # s, (B, E, H)
    gains = ratio(routing.classes.lengths, vector_norm(total, dim=-1))  # g, (B, E)
    pulled, own = pull_back(classes, directions * gains.unsqueeze(-1), coupled.shape[1])
    if branch.conv is None or routing.conv is None:
        said = hear(capsules.flatten(1, 2), pulled) + own  # (B, I, E)
        return (said * coupled).unflatten(1, capsules.shape[1:3]).sum(2)
    sums, amounts = part_sums(branch.conv, capsules, routing.conv.couplings)
    inner = ratio(routing.conv.lengths, vector_norm(sums.sum(2), dim=-1))  # (B, W, t)
    if pulled.ndim == 4:  # one a child of the classes: the same for its K parts
        pulled = pulled.unflatten(1, inner.shape[1:]).unsqueeze(2)
        pulled = pulled.expand(-1, -1, sums.shape[2], -1, -1, -1).flatten(1, 3)
    said = hear(sums.flatten(1, 3), pulled).unflatten(1, sums.shape[1:4])
    scaled = coupled * inner.flatten(1).unsqueeze(-1)  # (B, I, E)
    by_place = (said * scaled.unflatten(1, inner.shape[1:]).unsqueeze(2)).sum(3)
    shares = ratio(amounts, amounts.sum(2, keepdim=True))  # of a bias, (B, W, K, t)
    by_place += shares @ (coupled * own).unflatten(1, inner.shape[1:])  # (B, W, K, E)
    return add_windows(by_place.unbind(2))


def sum_votes(layer: RoutedLayer, children: Tensor, coupled: Tensor) -> Tensor:
    """Return s_j = Σ_i c_ij û_j|i, (B, J, H), of children (B, I, D)."""
    transform, bias, n = layer.transform, layer.bias, children.shape[1]
    if transform.ndim == 4:
        total = einsum("bij,bid,ijdh->bjh", coupled, children, transform[:n])
        own = None if bias is None else einsum("bij,ijh->bjh", coupled, bias[:n])
    else:
        total = einsum("bjd,jdh->bjh", coupled.mT @ children, transform)
        own = None if bias is None else coupled.sum(1).unsqueeze(-1) * bias
    return total if own is None else total + own


def pull_back(
    layer: RoutedLayer, directions: Tensor, n_children: int
) -> tuple[Tensor, Tensor]:
    """Bring the parents' directions (B, J, H) to where the children are.

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


def hear(children: Tensor, pulled: Tensor) -> Tensor:
    """Return (W u_i) · direction_j, (B, I, J), of children (B, I, D)."""
    if pulled.ndim == 4:
        return einsum("bid,bidj->bij", children, pulled)
    return children @ pulled


def part_sums(
    layer: ConvCapsules, capsules: Tensor, couplings: Tensor
) -> tuple[Tensor, Tensor]:
    """Part the sums s_wt of convolutional capsules by the positions they come from.

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
    """Divide, with nothing over nothing being nothing."""
    return part / whole.clamp(min=torch.finfo(whole.dtype).tiny) * (whole > 0)


STEPS = 16  # points on the way from zero vectors to the text


def gradient_times_input(
    network: nn.Module, ids: Tensor, mask: Tensor, classes: Sequence[int]
) -> Tensor:
    """Return x_t · ∂a_j/∂x_t for every token and some classes, (B, T, len(classes))."""
    return _strengths(network, ids, mask, classes, scales=[1.0])


def integrated_gradients(
    network: nn.Module,
    ids: Tensor,
    mask: Tensor,
    classes: Sequence[int],
    *,
    steps: int = STEPS,
) -> Tensor:
    """Return the strengths along the way from zero, by the midpoint rule."""
    scales = [(step + 0.5) / steps for step in range(steps)]
    return _strengths(network, ids, mask, classes, scales)


@torch.enable_grad()
def _strengths(
    network: nn.Module,
    ids: Tensor,
    mask: Tensor,
    classes: Sequence[int],
    scales: Sequence[float],
) -> Tensor:
    """Return x_t times the mean gradient at scaled word vectors, (B, T, classes)."""
    total = ids.new_zeros((*ids.shape, len(classes)), dtype=torch.float32)
    for scale in scales:
        # cuDNN's LSTM has no backward pass outside training.
        with (
            faded_words(network.get_submodule("embedding"), scale) as words,
            torch.backends.cudnn.flags(enabled=False),
        ):
            output = network(ids, mask)
        (vectors,) = words  # (B, T, V), or longer where padding votes
        lengths = output.lengths(orphan=True)  # (B, E)
        for place, number in enumerate(classes):
            (slopes,) = torch.autograd.grad(
                lengths[:, number].sum(), vectors, retain_graph=True
            )
            strength = (slopes * vectors.detach()).sum(-1) / scale  # (B, T)
            total[..., place] += strength[:, : ids.shape[1]]
    return total * mask.unsqueeze(-1) / len(scales)


@contextmanager
def faded_words(embedding: nn.Module, scale: float) -> Iterator[list[Tensor]]:
    """Scale what an embedding returns, and keep it to be differentiated by."""
    kept: list[Tensor] = []

    def fade(_module: nn.Module, _inputs: tuple, vectors: Tensor) -> Tensor:
        kept.append((vectors.detach() * scale).requires_grad_())
        return kept[-1]

    hook = embedding.register_forward_hook(fade)
    try:
        yield kept
    finally:
        hook.remove()


BATCH_SIZE = 64


@torch.inference_mode()
def document_lengths(
    network: System, documents: Sequence[NDArray]
) -> NDArray[np.float32]:
    """Return the lengths (N, E) of classes and orphan; zero without a known word.

    A model without capsules has its scores in their place.
    """
    documents = drop_unreadable(documents)
    if not isinstance(network, CapsuleNetwork):
        return score_documents(network, documents, batch_size=BATCH_SIZE)
    device = device_of(network)
    nothing = np.zeros((len(documents), 0), dtype=np.float32)  # no targets to carry
    parts, order = [], []
    sizes = [len(ids) for ids in documents]
    for rows in epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
        batch = make_batch(documents, nothing, rows).to(device)
        output = network(batch.ids, batch.mask)
        parts.append(output.lengths(orphan=True).float().cpu().numpy())
        order.append(rows)
    lengths = np.empty_like(np.concatenate(parts))
    lengths[np.concatenate(order)] = np.concatenate(parts)
    lengths[[size == 0 for size in sizes]] = 0  # where padding votes
    return lengths


def erase_ngrams(
    network: System,
    documents: Sequence[NDArray],
    size: int,
    stride: int,
    first: int = 0,
) -> list[NDArray[np.float32]]:
    """Return how far the lengths fall without each n-gram, (P, E) a document.

    The n-grams are the network's, the first beginning at token `first`; a text shorter
    than one is deleted whole.
    """
    # An n-gram that may reach over the ends has at least one token inside.
    starts = [
        range(first, max(len(ids) - (size if first == 0 else 1), 0) + 1, stride)
        for ids in documents
    ]
    left = [
        np.delete(ids, slice(max(start, 0), start + size))
        for ids, places in zip(documents, starts, strict=True)
        for start in places
    ]
    lengths = document_lengths(network, [*documents, *left])  # (N + ΣP, E)
    whole, rest = lengths[: len(documents)], lengths[len(documents) :]
    ends = np.cumsum([len(places) for places in starts])[:-1]
    return [
        own - without for own, without in zip(whole, np.split(rest, ends), strict=True)
    ]
