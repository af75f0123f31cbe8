"""Algorithm 1 of Zhao et al. (2018) in plain PyTorch: the definition of routing.

There are two equal ways to compute it. `route_with_votes` forms every vote, as the
paper writes it. `route_without_votes` forms none: with one transform W_j and bias β_j
per parent,

    Σ_i c_ij û_j|i = W_j (Σ_i c_ij u_i) + (Σ_i c_ij) β_j    sum children, transform once
    û_j|i · v_j    = u_i · (W_jᵀ v_j) + β_j · v_j            pull the parent back once

so memory grows with I·J + J·D·H instead of I·J·H. Every kernel is tested against these.

The paper's sums grow with the text: a child's couplings are multiplied by its length
a_i, so that a document of 200 words moves its parents fifty times as far as one of
four. With `normalise="total"` they are multiplied by gain · a_i / Σ_k a_k instead, over
the children that are not masked. A parent's pose is then a squashed mean of votes, and
a threshold on its length means the same for every length of text.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, einsum

from textcapsules.model.functional import coupling_softmax, pose_length, squash

__all__ = ["Routed", "RoutingOptions", "route_with_votes", "route_without_votes"]


class RoutingOptions(NamedTuple):
    """How to route; the defaults are the paper's.

    Attributes:
        iterations: how often couplings and poses are computed, at least 1.
        leaky: whether a child may route to no parent: its couplings sum to less than 1.
        amendment: whether a child's couplings are multiplied by its length.
        squash: how a pose is shortened, a name of `functional.SQUASHES` or "none".
        normalise: "total" makes the children's weights sum to the gain, whatever the
            length of the text; "none" leaves them as they are.
        compete: whether the parents share a child by a softmax; if not, each has a
            sigmoid of its own.

    >>> RoutingOptions(iterations=5).leaky
    True
    """

    iterations: int = 3
    leaky: bool = True
    amendment: bool = True
    squash: str = "norm"
    normalise: str = "none"
    compete: bool = True


class Routed(NamedTuple):
    """What routing returns; the couplings are those that made the poses."""

    poses: Tensor  # v, (B, J, H)
    lengths: Tensor  # a, (B, J)
    couplings: Tensor  # c, (B, I, J); None from a kernel that need not return them


def form_votes(
    children: Float[Tensor, "b i d"],
    transform: Float[Tensor, "*i j d h"],
    bias: Float[Tensor, "*i j h"] | None,
) -> Float[Tensor, "b i j h"]:
    """Return û_j|i = W u_i + β for a shared (J, D, H) or non-shared (I, J, D, H) W."""
    letters = "jdh" if transform.ndim == 3 else "ijdh"
    votes = einsum(f"bid,{letters}->bijh", children, transform)  # (B, I, J, H)
    return votes if bias is None else votes + bias


def route_with_votes(
    children: Float[Tensor, "b i d"],
    transform: Float[Tensor, "*i j d h"],
    bias: Float[Tensor, "*i j h"] | None = None,
    mask: Bool[Tensor, "b i"] | None = None,
    options: RoutingOptions = RoutingOptions(),
    gain: Float[Tensor, ""] | None = None,
) -> Routed:
    """Route by forming every vote, as the paper writes it."""
    votes = form_votes(children, transform, bias)  # û, (B, I, J, H)

    def gather(couplings: Tensor) -> Tensor:  # Σ_i c_ij û_j|i, (B, J, H)
        return einsum("bji,bijh->bjh", couplings, votes)

    def agree(poses: Tensor) -> Tensor:  # û_j|i · v_j, (B, J, I)
        return einsum("bijh,bjh->bji", votes, poses)

    existence = child_weight(children, mask, options, gain)
    return iterate(gather, agree, existence, transform.shape[-3], options)


def route_without_votes(
    children: Float[Tensor, "b i d"],
    transform: Float[Tensor, "j d h"],
    bias: Float[Tensor, "j h"] | None = None,
    mask: Bool[Tensor, "b i"] | None = None,
    options: RoutingOptions = RoutingOptions(),
    gain: Float[Tensor, ""] | None = None,
) -> Routed:
    """Route by the two identities, without votes; the transform must be shared."""

    def gather(couplings: Tensor) -> Tensor:  # W_j Σ_i c_ij u_i + β_j Σ_i c_ij
        total = einsum("bji,bid->bjd", couplings, children)  # (B, J, D)
        total = einsum("bjd,jdh->bjh", total, transform)  # (B, J, H)
        return total if bias is None else total + couplings.sum(2)[..., None] * bias

    def agree(poses: Tensor) -> Tensor:  # u_i · W_jᵀ v_j + β_j · v_j
        pulled = einsum("jdh,bjh->bjd", transform, poses)  # (B, J, D)
        agreement = einsum("bid,bjd->bji", children, pulled)  # (B, J, I)
        if bias is None:
            return agreement
        return agreement + einsum("jh,bjh->bj", bias, poses).unsqueeze(2)

    existence = child_weight(children, mask, options, gain)
    return iterate(gather, agree, existence, transform.shape[-3], options)


def iterate(
    gather: Callable[[Tensor], Tensor],
    agree: Callable[[Tensor], Tensor],
    existence: Float[Tensor, "b 1 i"],
    n_parents: int,
    options: RoutingOptions,
) -> Routed:
    """Run Algorithm 1, line by line.

    Logits and couplings are held as (B, J, I): a softmax along a short last axis was
    17 times slower than along the middle one on a CPU (14 parents, 928 children). The
    paper also updates the logits after the last iteration; nothing reads them.
    """
    B, _, I = existence.shape  # noqa: E741

    def couple(logits: Tensor) -> Tensor:  # c, (B, J, I)
        leaky, compete = options.leaky, options.compete
        return existence * coupling_softmax(logits, leaky=leaky, compete=compete, dim=1)

    logits = existence.new_zeros(B, n_parents, I)  # b
    couplings = couple(logits)
    poses = squash(gather(couplings), options.squash)  # v, (B, J, H)
    for _ in range(options.iterations - 1):
        logits = logits + agree(poses)
        couplings = couple(logits)
        poses = squash(gather(couplings), options.squash)
    return Routed(poses, pose_length(poses), couplings.transpose(1, 2))


def child_weight(
    children: Float[Tensor, "b i d"],
    mask: Bool[Tensor, "b i"] | None,
    options: RoutingOptions,
    gain: Float[Tensor, ""] | None = None,
) -> Float[Tensor, "b 1 i"]:
    """Return what a child's couplings are multiplied by: â if amended, 0 if masked.

    Normalised, these weights sum to `gain` (1 where none is given), or to 0 where no
    child votes.
    """
    if options.amendment:
        weight = pose_length(children)
    else:
        weight = torch.ones_like(children[..., 0])
    if mask is not None:
        weight = weight * mask
    if options.normalise == "total":
        total = weight.sum(1, keepdim=True)  # (B, 1)
        # One instead of zero, where all weights are zero: a tiny number would make
        # their gradients infinite, and zero times those NaN.
        weight = weight / torch.where(total > 0, total, 1.0)
        weight = weight if gain is None else gain * weight
    return weight.unsqueeze(1)
