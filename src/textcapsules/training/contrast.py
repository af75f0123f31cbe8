"""A warm-up in which the encoder alone learns to put texts of one label together.

It is the first stage of SetFit (Tunstall et al., 2022). A text's vector is the mean of
its states. In every pass, each text is paired with one that shares a label with it and
with one that shares none; the cosine of two texts is moved towards the overlap of their
labels: 1 for the same labels, 0 for none in common, else the share of all their labels
that both have (Jaccard). The network above the encoder is not used and does not change.

Pairs, order and dropout are drawn from (seed, pass). A run that is interrupted before
its first checkpoint begins again with the warm-up.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from textcapsules.config import RunConfig
from textcapsules.model.network import Network
from textcapsules.text.batch import Batch, epoch_batches, make_batch
from textcapsules.text.encoder_training import LearningEncoder
from textcapsules.training.loop import Step
from textcapsules.training.optimise import rate_at
from textcapsules.training.prepare import Encoded
from textcapsules.training.steps import EagerSteps

__all__ = ["draw_partners", "mean_states", "pair_loss", "warm_up"]

WARMUP = 0.1  # share of the steps in which the rate rises; then it falls to zero
TEXTS_PER_ANCHOR = 3  # the text and its two partners
TAG = 2  # keeps these draws apart from those of epochs

log = logging.getLogger(__name__)


def warm_up(
    config: RunConfig,
    network: Network,
    encoder: LearningEncoder,
    train: Encoded,
    device: torch.device,
    on_step: Callable[[Step], None] | None = None,
) -> None:
    """Let the encoder of a network learn for `contrastive_epochs` passes.

    Its rates are those of `--encoder-rate` and `--encoder-decay`.
    """
    n_passes = config.train.contrastive_epochs
    if not can_contrast(train.targets):
        log.warning(
            "the contrastive warm-up is left out: it needs two texts that share a "
            "label, and two that share none."
        )
        return
    schedule = replace(
        config.train, epochs=n_passes, schedule="linear", warmup=WARMUP, rate_decay=1.0
    )
    # This optimiser has every weight; those without a gradient stay as they are.
    steps = EagerSteps(config, network, device)
    encoder.train()
    for number in range(n_passes):
        seed = np.random.SeedSequence([config.train.seed, number, TAG])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        batches = pair_batches(config, train, number)
        for step, pairs in enumerate(batches):
            steps.set_rate(rate_at(schedule, number, step, len(batches)))
            rows, places = np.unique(pairs, return_inverse=True)
            batch = make_batch(*train, rows).to(device)
            vectors = mean_states(encoder, batch)
            places = torch.from_numpy(places.reshape(pairs.shape)).to(device)
            loss = pair_loss(vectors, batch.targets, places)
            loss.backward()
            if config.train.clip_norm:
                nn.utils.clip_grad_norm_(encoder.parameters(), config.train.clip_norm)
            steps.optimiser.step()
            steps.optimiser.zero_grad(set_to_none=True)
            if on_step is not None:
                mean = float(loss.detach())
                shown = number, step, n_passes, len(batches), mean
                on_step(Step(*shown, stage="contrastive warm-up"))


def can_contrast(targets: NDArray) -> bool:
    """Tell whether some texts share a label, and some share none."""
    partners = draw_partners(targets, 0) != np.arange(len(targets))[:, None]  # (N, 2)
    return bool(partners.any(0).all())


def pair_batches(config: RunConfig, train: Encoded, number: int) -> list[NDArray]:
    """Return the pairs of texts (P, 2) of every step of a pass."""
    seed, size = config.train.seed, config.train.batch_size
    partners = draw_partners(train.targets, [seed, number, TAG])
    lengths = np.array([len(ids) for ids in train.documents])
    longest = np.maximum(lengths, lengths[partners].max(1))  # of a text's pairs
    batches = []
    for rows in epoch_batches(
        longest, max(size // TEXTS_PER_ANCHOR, 1), seed=seed, epoch=number
    ):
        pairs = np.stack([rows.repeat(2), partners[rows].reshape(-1)], axis=1)
        batches.append(pairs[pairs[:, 0] != pairs[:, 1]])
    return [pairs for pairs in batches if len(pairs)]


def draw_partners(targets: NDArray, seed: int | list[int]) -> NDArray:
    """Draw two other rows per text (N, 2): one that shares a label, one that does not.

    Where there is no such row, it is the text's own.
    """
    random = np.random.default_rng(seed)
    partners = np.arange(len(targets))[:, None].repeat(2, axis=1)
    label_sets, set_of = np.unique(targets, axis=0, return_inverse=True)
    set_of = set_of.reshape(-1)  # NumPy 2.0 returns a column
    for number, labels in enumerate(label_sets):
        rows = np.flatnonzero(set_of == number)
        shares = targets @ labels > 0
        near, far = np.flatnonzero(shares), np.flatnonzero(~shares)
        if len(near) > 1:
            drawn = random.integers(len(near) - 1, size=len(rows))
            drawn += drawn >= np.searchsorted(near, rows)  # steps over the text itself
            partners[rows, 0] = near[drawn]
        if len(far):
            partners[rows, 1] = random.choice(far, len(rows))
    return partners


def mean_states(encoder: LearningEncoder, batch: Batch) -> Tensor:
    """Return the mean of every text's states (B, E) over its word pieces."""
    inside = batch.mask.unsqueeze(2)  # (B, T, 1)
    total = (encoder.normalised(batch.ids) * inside).sum(1)
    return total / inside.sum(1).clamp(min=1)


def pair_loss(vectors: Tensor, targets: Tensor, pairs: Tensor) -> Tensor:
    """Return the mean of (cosine - overlap of the labels)^2 over pairs of texts.

    Args:
        vectors: (B, E), one per text.
        targets: (B, J), 1 where a text has a label.
        pairs: (P, 2), rows of the two.
    """
    first, second = pairs.unbind(1)
    cosines = nn.functional.cosine_similarity(vectors[first], vectors[second])
    both = torch.minimum(targets[first], targets[second]).sum(1)
    either = torch.maximum(targets[first], targets[second]).sum(1)
    return (cosines - both / either.clamp(min=1)).square().mean()
