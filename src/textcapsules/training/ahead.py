"""Compile the kernels of a training before its first step, all at the same time.

A batch of every few lengths goes through a step and through scoring without launching
a kernel, and changes nothing: no weight, no random number, no precision.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.network import Network
from textcapsules.model.routing import has_triton
from textcapsules.model.score import dry_scores
from textcapsules.text.batch import make_batch
from textcapsules.text.encoder_training import LearningEncoder
from textcapsules.training.losses import output_loss
from textcapsules.training.prepare import Encoded
from textcapsules.training.start import sample
from textcapsules.training.steps import padded_length, use_precision

__all__ = ["compile_ahead"]

log = logging.getLogger(__name__)

MOST_LENGTHS = 6  # kernels differ between short and long texts, not between all

_done: set[str] = set()  # a process that trains again has these kernels


def compile_ahead(
    network: Network,
    config: RunConfig,
    train: Encoded,
    scored: Sequence[Sequence[NDArray]],
    device: torch.device,
    *,
    scale: bool = False,
) -> None:
    """Compile what steps and scores of these documents need on a GPU.

    Args:
        network: the network, on its device.
        config: the run's options.
        train: what is trained on.
        scored: the sets of documents that are scored.
        device: the network's.
        scale: whether the capsules are scaled first (`scale_lengths`).
    """
    if device.type != "cuda" or not has_triton() or not needs_kernels(network):
        return
    lengths = lengths_tried(train.documents, network.length_step, network.most_tokens)
    each = config.train.precision, config.train.batch_size, network.n_classes, scale
    run = repr((config.model, config.loss, each, lengths))  # not the seed
    if run in _done:
        return
    try:
        from textcapsules.model.kernels.gpu.compile import compile_planned, planned

        with planned() as launches:
            dry_run(network, config, train, scored, lengths, scale=scale)
        compile_planned(launches)
        _done.add(run)
    except Exception as error:  # then they are compiled where they are launched
        log.debug("compiling ahead: %r", error)


def dry_run(
    network: Network,
    config: RunConfig,
    train: Encoded,
    scored: Sequence[Sequence[NDArray]],
    lengths: Sequence[int],
    *,
    scale: bool,
) -> None:
    """Go through steps of some lengths and through scoring, and change nothing."""
    was_training, device = network.training, next(network.parameters()).device
    drawn_from = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(drawn_from), same_precision(network):
            if scale:
                dry_scale(network, config, train.documents, device)
            use_precision(network, config.train.precision, device)
            for tokens in lengths:
                dry_step(network, config, train, tokens, device)
            for documents in scored:
                dry_scores(network, documents)
    finally:
        network.zero_grad(set_to_none=True)
        network.train(was_training)


def needs_kernels(network: Network) -> bool:
    """Tell whether a network has kernels, and a step without an update is cheap."""
    return isinstance(network, CapsuleNetwork) and not isinstance(
        network.embedding, LearningEncoder
    )


def lengths_tried(
    documents: Sequence[NDArray], step: int, most: int | None = None
) -> list[int]:
    """Return some of the padded lengths of documents, the ends among them."""
    found = sorted({padded_length(len(ids), most, step) for ids in documents})
    places = np.linspace(0, len(found) - 1, min(MOST_LENGTHS, len(found)))
    return [found[place] for place in places.round().astype(int)]


@contextmanager
def same_precision(network: Network) -> Iterator[None]:
    """Give the network's kernels and the GPU libraries back their precision."""
    libraries: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    allowed = [library.allow_tf32 for library in libraries]
    layers = [m for m in network.modules() if hasattr(m, "precision")]
    before = [layer.precision for layer in layers]
    try:
        yield
    finally:
        for layer, precision in zip(layers, before, strict=True):
            layer.precision = precision  # type: ignore[assignment]
        for library, allow in zip(libraries, allowed, strict=True):
            library.allow_tf32 = allow


def dry_scale(
    network: Network,
    config: RunConfig,
    documents: Sequence[NDArray],
    device: torch.device,
) -> None:
    """Go through what `scale_lengths` does first, without scaling anything."""
    assert isinstance(network, CapsuleNetwork)
    batch = sample(documents, config.train.seed).to(device)
    network.eval()
    with torch.no_grad():
        network.route(batch.ids, batch.mask, couplings=False)


def dry_step(
    network: Network,
    config: RunConfig,
    train: Encoded,
    tokens: int,
    device: torch.device,
) -> None:
    """Go through a step with texts of about this length, without an update."""
    size = config.train.batch_size
    lengths = np.array([len(ids) for ids in train.documents])
    order = np.argsort(lengths, kind="stable")
    stop = max(int(np.searchsorted(lengths[order], tokens, side="right")), size)
    rows = order[max(0, stop - size) : stop]
    # Steps that are not captured take the texts' own length.
    pad_to = tokens if network.capturable else None
    batch = make_batch(train.documents, train.targets, rows, pad_to).to(device)
    network.train()
    output = network(batch.ids, batch.mask)
    output_loss(config.loss, output, batch.targets, 0).backward()
