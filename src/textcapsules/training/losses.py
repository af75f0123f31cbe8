"""Margin, spread, cross-entropy and entropy loss on the lengths of class capsules.

All take lengths (B, E) and targets (B, E), with several ones if a text has several
labels. They sum over the classes and average over the batch. The orphan, if it takes
part, is one more column that is never a target. A baseline network has logits in place
of lengths for the cross-entropies, and probabilities for margin and spread. Where every
class is decided for itself, lengths are read as probabilities.

A text with one label may deserve others (single-positive multi-label learning). Two
losses allow for it: absent labels may weigh less (`absent_weight`; Cole et al., 2021,
weigh them by 1 / (J - 1)), or count as unknown (`entropy_loss`; Zhou et al., 2022).
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from textcapsules.config import LossConfig
from textcapsules.model.capsnet import CapsuleOutput
from textcapsules.model.network import ClassOutput
from textcapsules.model.routing import has_triton

__all__ = [
    "binary_cross_entropy",
    "cross_entropy",
    "entropy_loss",
    "margin_loss",
    "network_loss",
    "output_loss",
    "spread_loss",
    "spread_margin",
]

EDGE = 1e-6  # minimum distance from 0 and 1 of a length read as a probability


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
        from textcapsules.model.kernels.gpu.losses import margin_loss_gpu

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
    """Softmax cross-entropy, lengths as logits; a text's labels have equal weights."""
    share = targets / targets.sum(1, keepdim=True).clamp(min=1)
    return F.cross_entropy(lengths, share)


def binary_cross_entropy(
    logits: Float[Tensor, "b e"],
    targets: Float[Tensor, "b e"],
    *,
    absent_weight: float = 1.0,
) -> Float[Tensor, ""]:
    """Logistic loss per class; the weight of absent classes may be lower."""
    each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    if absent_weight != 1:
        each = each * (targets + absent_weight * (1 - targets))
    return each.sum(1).mean()


def entropy_loss(
    logits: Float[Tensor, "b e"], targets: Float[Tensor, "b n"], *, weight: float
) -> Float[Tensor, ""]:
    """Ask for the given classes, and keep the others undecided: -log p, -alpha H(p).

    Columns past the targets', the orphan's, are known to be absent: -log(1 - p).
    """
    n_classes = targets.shape[1]
    yes, no = F.softplus(-logits), F.softplus(logits)  # -log p, -log(1 - p)
    p = logits.sigmoid()
    entropy = (p * yes + (1 - p) * no)[:, :n_classes]
    each = targets * yes[:, :n_classes] - weight * (1 - targets) * entropy
    return (each.sum(1) + no[:, n_classes:].sum(1)).mean()


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
    """Return the configured loss; lengths may have one more column, the orphan's."""
    if config.loss == "entropy":
        return entropy_loss(lengths, targets, weight=config.entropy_weight)
    if more := lengths.shape[1] - targets.shape[1]:
        targets = F.pad(targets, (0, more))
    if config.loss in ("auto", "margin"):  # auto: margin, where nothing settled it
        return margin_loss(
            lengths,
            targets,
            m_plus=config.m_plus,
            m_minus=config.m_minus,
            down_weight=config.down_weight * config.absent_weight,
        )
    if config.loss == "spread":
        return spread_loss(lengths, targets, margin=spread_margin(config, epoch))
    if config.loss == "binary-cross-entropy":
        return binary_cross_entropy(
            lengths, targets, absent_weight=config.absent_weight
        )
    return cross_entropy(lengths, targets)


def output_loss(
    config: LossConfig,
    output: CapsuleOutput | ClassOutput,
    targets: Float[Tensor, "b n"],
    epoch: int = 0,
) -> Float[Tensor, ""]:
    """Return what training minimises: the configured loss and any penalty.

    With a loss per branch it is the mean of the losses of all n-gram networks.
    """
    if config.per_branch and isinstance(output, CapsuleOutput) and output.alone:
        losses = [output_loss(config, each, targets, epoch) for each in output.alone]
        return torch.stack(losses).mean()
    takes_logits = config.loss.endswith("entropy")
    if isinstance(output, CapsuleOutput):
        asked = output.lengths(orphan=config.orphan_in_loss)
        if takes_logits and output.logits is not None:
            asked = output.logits
        elif takes_logits and config.loss != "cross-entropy":
            asked = torch.logit(asked, eps=EDGE)
        return network_loss(config, asked, targets, epoch)
    asked = output.logits if takes_logits else output.scores
    loss = network_loss(config, asked, targets, epoch)
    return loss if output.penalty is None else loss + output.penalty
