"""Scale the capsules of every layer to a given length before the first step.

A child's vote is proportional to its length, and with the coefficient amendment to its
square: a class's length then grows with about the third power of the initial weights.
With weights drawn as usual, capsules are so short that the first steps can overshoot,
shrink them further, and get stuck there. Here the weights are scaled layer by layer
until the capsules of some training texts have the length asked for (`--start-length`).
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from textcapsules.model.capsnet import BranchRouting, CapsuleNetwork, NgramBranch
from textcapsules.model.functional import pose_length
from textcapsules.model.layers import CapsuleLayer, window_mask
from textcapsules.text.batch import Batch, make_batch

__all__ = ["scale_lengths"]

MAX_TOKENS = 2**13  # in the sample, padding included
ROUNDS = 8  # several, since a squash is not linear
FACTORS = (1 / 64, 64.0)  # limits of one round


@torch.no_grad()
def scale_lengths(
    network: CapsuleNetwork, documents: Sequence[NDArray], goal: float, *, seed: int
) -> None:
    """Scale the weights of every capsule layer to the mean length `goal`, in place."""
    batch = sample(documents, seed).to(next(network.parameters()).device)
    was_training = network.training
    network.eval()
    for layer in ("primary", "conv", "classes"):
        for _ in range(ROUNDS):
            routings = network.route(batch.ids, batch.mask, couplings=False)
            for branch, routed in zip(network.branches, routings, strict=True):
                assert isinstance(branch, NgramBranch)
                if (weight := weight_of(branch, layer)) is not None:
                    length = mean_length(branch, routed, layer)
                    weight *= (goal / length).clamp(*FACTORS)
    network.train(was_training)


def sample(documents: Sequence[NDArray], seed: int) -> Batch:
    """Return some texts that have words, few enough for any memory."""
    texts = [words for words in documents if len(words)]
    order = np.random.default_rng(seed).permutation(len(texts))
    longest = np.maximum.accumulate([len(texts[row]) for row in order])
    fits = longest * np.arange(1, len(order) + 1) <= MAX_TOKENS
    rows = order[: max(1, int(fits.sum()))]
    return make_batch(texts, np.zeros((len(texts), 0), np.float32), rows)


def weight_of(branch: NgramBranch, layer: str) -> Tensor | None:
    """Return the weight that is scaled; None if there is no such layer."""
    if layer == "primary":
        return branch.primary.linear.weight
    if layer == "classes":
        classes = branch.classes
        return classes.transform if isinstance(classes, CapsuleLayer) else None
    return None if branch.conv is None else branch.conv.transform


def mean_length(branch: NgramBranch, routed: BranchRouting, layer: str) -> Tensor:
    """Return the mean length of a layer's capsules, without those on padding."""
    if layer == "primary":
        return pose_length(routed.capsules)[routed.mask].mean()
    if layer == "classes":
        return routed.classes.lengths[routed.mask.any(1)].mean()
    assert branch.conv is not None and routed.conv is not None
    inside = window_mask(routed.mask, branch.conv.window)  # (B, W)
    return routed.conv.lengths[inside].mean()
