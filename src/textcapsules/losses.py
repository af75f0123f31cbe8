"""Margin, spread and cross-entropy loss on the lengths of class capsules.

All take lengths (B, E) and targets (B, E), several of them 1 where a text carries
several labels, sum over the classes and average over the batch. The orphan, if it takes
part, is one more column that is never a target. A rival network has logits in place of
lengths for the cross-entropies, and probabilities for margin and spread.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from textcapsules.config import LossConfig
from textcapsules.model.capsnet import CapsuleOutput
from textcapsules.model.rivals.output import ClassOutput
from textcapsules.model.routing import has_triton

__all__ = [
    "binary_cross_entropy",
    "cross_entropy",
    "margin_loss",
    "network_loss",
    "output_loss",
    "spread_loss",
    "spread_margin",
]


def margin_loss(
    lengths: Float[Tensor, "b e"],
    targets: Float[Tensor, "b e"],
    *,
    m_plus: float = 0.9,
    m_minus: float = 0.1,
    down_weight: float = 0.5,
) -> Float[Tensor, ""]:
    """Ask true classes to be longer than m+ and the others shorter than m-."""
    if lengths.is_cuda and lengths.dtype == torch.float32 and has_triton():
        from textcapsules.losses_gpu import margin_loss_gpu

        return margin_loss_gpu(
            lengths, targets, m_plus=m_plus, m_minus=m_minus, down_weight=down_weight
        )
    present = targets * F.relu(m_plus - lengths).square()
    absent = down_weight * (1 - targets) * F.relu(lengths - m_minus).square()
    return (present + absent).sum(1).mean()


def spread_loss(
    lengths: Float[Tensor, "b e"], targets: Float[Tensor, "b e"], *, margin: float
) -> Float[Tensor, ""]:
    """Ask every true class to be longer than every other by `margin`."""
    gap = lengths.unsqueeze(2) - lengths.unsqueeze(1)  # a_t - a_i, (B, E, E)
    pairs = targets.unsqueeze(2) * (1 - targets).unsqueeze(1)  # (B, E, E)
    return (pairs * F.relu(margin - gap).square()).sum((1, 2)).mean()


def cross_entropy(
    lengths: Float[Tensor, "b e"], targets: Float[Tensor, "b e"]
) -> Float[Tensor, ""]:
    """Softmax cross-entropy, lengths as logits; labels of a text weigh alike."""
    share = targets / targets.sum(1, keepdim=True).clamp(min=1)
    return F.cross_entropy(lengths, share)


def binary_cross_entropy(
    logits: Float[Tensor, "b e"], targets: Float[Tensor, "b e"]
) -> Float[Tensor, ""]:
    """Logistic loss of every class for itself."""
    each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return each.sum(1).mean()


def spread_margin(config: LossConfig, epoch: int) -> float:
    """Return the spread loss's margin, raised in equal steps over the first epochs.

    >>> [round(spread_margin(LossConfig(), epoch), 2) for epoch in (0, 5, 10, 30)]
    [0.2, 0.55, 0.9, 0.9]
    """
    done = min(epoch / config.spread_epochs, 1.0)
    return config.spread_start + done * (config.spread_end - config.spread_start)


def network_loss(
    config: LossConfig,
    lengths: Float[Tensor, "b e"],
    targets: Float[Tensor, "b n"],
    epoch: int = 0,
) -> Float[Tensor, ""]:
    """Return the configured loss; columns past the targets' are the orphan's."""
    targets = F.pad(targets, (0, lengths.shape[1] - targets.shape[1]))
    if config.loss in ("auto", "margin"):  # auto: margin, where nothing settled it
        return margin_loss(
            lengths,
            targets,
            m_plus=config.m_plus,
            m_minus=config.m_minus,
            down_weight=config.down_weight,
        )
    if config.loss == "spread":
        return spread_loss(lengths, targets, margin=spread_margin(config, epoch))
    if config.loss == "binary-cross-entropy":
        return binary_cross_entropy(lengths, targets)
    return cross_entropy(lengths, targets)


def output_loss(
    config: LossConfig,
    output: CapsuleOutput | ClassOutput,
    targets: Float[Tensor, "b n"],
    epoch: int = 0,
) -> Float[Tensor, ""]:
    """Return what training minimises: the configured loss and any penalty."""
    if isinstance(output, CapsuleOutput):
        lengths = output.lengths(orphan=config.orphan_in_loss)
        return network_loss(config, lengths, targets, epoch)
    takes_logits = config.loss.endswith("cross-entropy")
    asked = output.logits if takes_logits else output.scores
    loss = network_loss(config, asked, targets, epoch)
    return loss if output.penalty is None else loss + output.penalty
