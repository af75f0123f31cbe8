"""What the routing of a capsule network did, from the outside.

`connections` lists how strongly every n-gram of a text is tied to every category, as
the paper's tables 6, A.1 and A.2 show it.

`convergence` says how couplings sharpen: the last layer is routed again with 1, 2, ...
iterations. The capsules below stay the same, so that only the number of iterations
differs. Over all children, each weighted by what it gives to the classes and the
orphan:

- `strongest`: the share of it that the child's strongest parent gets;
- `entropy`: of its shares, divided by that of equal shares, log J.

An iteration that no longer changes anything was one too many.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.layers import CapsuleLayer
from textcapsules.reasons.explanation import ORPHAN
from textcapsules.reasons.methods import batch_for, capsule_network, evaluating
from textcapsules.reasons.strengths import find_strengths
from textcapsules.reasons.texts import locate_texts
from textcapsules.text.batch import epoch_batches

__all__ = ["Connections", "Convergence", "connections", "convergence"]

TINY = 1e-30  # in place of the mass of a child that gives nothing


class Connections(NamedTuple):
    """Connection strengths of one text's n-grams of one size, in the text's order."""

    text: str
    phrases: tuple[str, ...]  # the n-grams, as they stand in the text
    strengths: dict[str, tuple[float, ...]]  # by category, one per n-gram; orphan last
    scores: dict[str, float]


def connections(
    classifier: TextClassifier,
    text: str,
    *,
    ngram_size: int | None = None,
    method: str = "couplings",
) -> Connections:
    """Return how strongly every n-gram of a text is tied to every category.

    Args:
        classifier: a capsule network.
        text: the document.
        ngram_size: which of the model's sizes; the first if None.
        method: as for `explain`; `couplings` is the paper's quantity.
    """
    network = capsule_network(classifier)
    ((ids, places),) = locate_texts(classifier, [text])
    batch = batch_for(network, [ids], [0])
    with evaluating(network):
        strengths = find_strengths(network, batch.ids, batch.mask, method)
    by_size = {ngrams.size: ngrams for ngrams in strengths.ngrams}
    size = strengths.ngrams[0].size if ngram_size is None else ngram_size
    if size not in by_size:
        raise ConfigError(
            f"ngram_size must be one of the model's, {sorted(by_size)}; got {size!r}."
        )
    ngrams = by_size[size]
    values = ngrams.values[0]  # (P, E)
    starts = range(ngrams.first, len(places), ngrams.stride)[: len(values)]
    continues = classifier.tokenizer.continues
    goes_on = np.zeros(len(ids), bool) if continues is None else continues[ids]

    def named(start: int) -> str:
        """Return the whole words of an n-gram, which on an encoder may cut some."""
        first, last = max(start, 0), min(start + size, len(places)) - 1
        while first > 0 and goes_on[first]:
            first -= 1
        while last + 1 < len(places) and goes_on[last + 1]:
            last += 1
        return text[places[first][0] : places[last][1]]

    phrases = tuple(named(start) for start in starts if places)
    columns = values[: len(phrases)].T.tolist()  # one list per category
    names = (*classifier.labels.names, ORPHAN)[: len(columns)]
    lengths = strengths.lengths[0].tolist() if places else [0.0] * len(columns)
    return Connections(
        text,
        phrases,
        dict(zip(names, map(tuple, columns), strict=True)),
        dict(zip(names, lengths, strict=True)),
    )


class Convergence(NamedTuple):
    """How sharp couplings were after 1, 2, ... iterations."""

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
    totals = torch.zeros(last, 3, dtype=torch.float64)
    lengths = [len(ids) for ids in documents]
    with evaluating(network):
        for rows in epoch_batches(lengths, batch_size, seed=0, epoch=0, shuffle=False):
            batch = batch_for(network, documents, rows)
            with inputs_of_classes(network) as inputs:
                network(batch.ids, batch.mask)
            for layer, capsules, mask in inputs:
                for place in range(last):
                    routed = with_iterations(layer, place + 1)(capsules, mask)
                    totals[place] += sharpness(routed.couplings).cpu()
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
) -> Iterator[list[tuple[CapsuleLayer, Tensor, Tensor]]]:
    """Collect the inputs of class layers: capsules (B, P, C, D) and mask (B, P)."""
    inputs = []
    layers = [module for module in network.modules() if type(module) is CapsuleLayer]
    hooks = [
        layer.register_forward_pre_hook(
            lambda module, given: inputs.append((module, *given))
        )
        for layer in layers
    ]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def with_iterations(layer: CapsuleLayer, iterations: int) -> CapsuleLayer:
    """Return a layer with the same weights and another number of iterations."""
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
