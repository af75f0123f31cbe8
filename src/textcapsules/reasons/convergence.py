"""How couplings sharpen: the last layer routed again with 1, 2, ... iterations.

The capsules below stay the same, so that nothing but the number of iterations differs.
Over all children, each weighted by what it gives to the classes and the orphan:

- `strongest`: the share of it that the child's strongest parent gets;
- `entropy`: of its shares, divided by that of equal shares, log J.

An iteration that changes nothing any more has been one too many.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.layers import ClassCapsules
from textcapsules.reasons.networks import capsule_network
from textcapsules.text.batch import epoch_batches, make_batch

__all__ = ["Convergence", "convergence"]

TINY = 1e-30  # in place of the mass of a child that gives nothing


class Convergence(NamedTuple):
    """What couplings were like after 1, 2, ... iterations."""

    texts: int
    trained: int  # the iterations of the model itself
    strongest: tuple[float, ...]
    entropy: tuple[float, ...]


@torch.inference_mode()
def convergence(
    classifier: TextClassifier,
    texts: Sequence[str],
    *,
    iterations: int | None = None,
    batch_size: int = 32,
) -> Convergence:
    """Measure how couplings sharpen, by default up to two iterations past the model's.

    Texts that are empty, or have no known word, have no couplings and are left out.
    """
    trained = classifier.config.model.iterations
    last = trained + 2 if iterations is None else iterations
    if last < 1:
        raise ConfigError(f"iterations must be at least 1; got {last}.")
    documents = [ids for ids in classifier.encode(texts) if len(ids)]
    if not documents:
        raise DataError("texts must hold one with a known word; got none.")
    network = capsule_network(classifier)
    was_training = network.training
    network.eval()
    device = next(network.parameters()).device
    nothing = torch.zeros(len(documents), 0).numpy()
    totals = torch.zeros(last, 3, dtype=torch.float64)
    lengths = [len(ids) for ids in documents]
    for rows in epoch_batches(lengths, batch_size, seed=0, epoch=0, shuffle=False):
        batch = make_batch(documents, nothing, rows).to(device)
        with inputs_of_classes(network) as seen:
            network(batch.ids, batch.mask)
        for layer, capsules, mask in seen:
            for place in range(last):
                routed = with_iterations(layer, place + 1)(capsules, mask)
                totals[place] += sharpness(routed.couplings).cpu()
    network.train(was_training)
    mass, strongest, entropy = totals.T
    return Convergence(
        len(documents),
        trained,
        tuple((strongest / mass).tolist()),
        tuple((entropy / mass).tolist()),
    )


@contextmanager
def inputs_of_classes(
    network: nn.Module,
) -> Iterator[list[tuple[ClassCapsules, Tensor, Tensor]]]:
    """Collect what the class layers are given: capsules (B, P, C, D), mask (B, P)."""
    seen = []
    layers = [module for module in network.modules() if type(module) is ClassCapsules]
    hooks = [
        layer.register_forward_pre_hook(
            lambda module, given: seen.append((module, *given))
        )
        for layer in layers
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def with_iterations(layer: ClassCapsules, iterations: int) -> ClassCapsules:
    """Return a layer with the same weights that routes another number of times."""
    twin = copy(layer)
    twin.options = layer.options._replace(iterations=iterations)
    return twin


def sharpness(couplings: Tensor) -> Tensor:
    """Add up mass, strongest share and entropy over the children of (B, I, J)."""
    couplings = couplings.double()
    mass = couplings.sum(-1)  # (B, I)
    shares = couplings / mass.clamp(min=TINY).unsqueeze(-1)
    entropy = torch.special.entr(shares).sum(-1) / math.log(couplings.shape[-1])
    parts = (mass, mass * shares.amax(-1), mass * entropy)
    return torch.stack([part.sum() for part in parts])
