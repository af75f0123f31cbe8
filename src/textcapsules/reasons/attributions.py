"""Strengths of words and n-grams for any model, found by changing its text a little.

**Gradients: fade a word.** Gradient times input is x_t · ∂a_j/∂x_t for the word vector
x_t: how the length a_j of a class would change, to first order, if the word faded.
Integrated gradients (Sundararajan et al., 2017) average that gradient along the way
from zero vectors to the text's, so that the strengths add up to a_j(text) - a_j(zero
vectors), up to the error of the sum. A network without capsules has its logit in place
of a length: its scores are flat where it is sure.

**Erasure: delete an n-gram.** The model predicts again without it, and the strength is
how far a length falls. Deleting takes the words out of the text, whose rest closes up,
as a reader would do it and as the model may meet it. It needs one prediction per
n-gram, so it is slow.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from textcapsules.model.builder import System
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.score import drop_unreadable, score_documents
from textcapsules.reasons.methods import batch_for, class_scores
from textcapsules.text.batch import epoch_batches
from textcapsules.text.encoder import EncoderEmbedding
from textcapsules.text.pieces import keep_pieces

__all__ = [
    "STEPS",
    "document_lengths",
    "erase_ngrams",
    "faded_words",
    "gradient_times_input",
    "integrated_gradients",
    "keep_tokens",
]

STEPS = 16  # points on the way from zero vectors to the text
BATCH_SIZE = 64


def gradient_times_input(
    network: nn.Module, ids: Tensor, mask: Tensor, classes: Sequence[int]
) -> Tensor:
    """Return x_t · ∂a_j/∂x_t for every token and some classes, (B, T, len(classes))."""
    return word_strengths(network, ids, mask, classes, scales=[1.0])


def integrated_gradients(
    network: nn.Module,
    ids: Tensor,
    mask: Tensor,
    classes: Sequence[int],
    *,
    steps: int = STEPS,
) -> Tensor:
    """Return strengths averaged along the way from zero, by the midpoint rule."""
    scales = [(step + 0.5) / steps for step in range(steps)]
    return word_strengths(network, ids, mask, classes, scales)


@torch.enable_grad()
def word_strengths(
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
            (gradient,) = torch.autograd.grad(
                lengths[:, number].sum(), vectors, retain_graph=True
            )
            strength = (gradient * vectors.detach()).sum(-1) / scale  # (B, T)
            total[..., place] += strength[:, : ids.shape[1]]
    return total * mask.unsqueeze(-1) / len(scales)


@contextmanager
def faded_words(embedding: nn.Module, scale: float) -> Iterator[list[Tensor]]:
    """Scale what an embedding returns, and keep it, so that gradients can be taken."""
    kept: list[Tensor] = []

    def fade(_module: nn.Module, _inputs: tuple, vectors: Tensor) -> Tensor:
        kept.append((vectors.detach() * scale).requires_grad_())
        return kept[-1]

    hook = embedding.register_forward_hook(fade)
    try:
        yield kept
    finally:
        hook.remove()


@torch.inference_mode()
def document_lengths(
    network: System, documents: Sequence[NDArray]
) -> NDArray[np.float32]:
    """Return the lengths (N, E) of classes and orphan; zero without a known word.

    A model without capsules has scores instead of lengths.
    """
    documents = drop_unreadable(documents)
    if not isinstance(network, CapsuleNetwork):
        return score_documents(network, documents, batch_size=BATCH_SIZE)
    sizes = [len(ids) for ids in documents]
    order = epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False)
    parts = []
    for rows in order:
        batch = batch_for(network, documents, rows)
        output = network(batch.ids, batch.mask)
        lengths = class_scores(network, output, batch.ids, batch.mask)
        parts.append(lengths.float().cpu().numpy())
    lengths = np.empty_like(np.concatenate(parts))
    lengths[np.concatenate(order)] = np.concatenate(parts)
    lengths[[size == 0 for size in sizes]] = 0  # where padding votes
    return lengths


def keep_tokens(
    network: System, ids: NDArray, kept: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Return a document of the tokens that are kept; the rest closes up.

    An encoder's sentences stay apart: run together, they would be read otherwise.
    """
    embedding = getattr(network, "embedding", None)
    if isinstance(embedding, EncoderEmbedding):
        return keep_pieces(ids, kept, embedding.states.n_pieces)
    return ids[kept]


def erase_ngrams(
    network: System,
    documents: Sequence[NDArray],
    size: int,
    stride: int,
    first: int = 0,
) -> list[NDArray[np.float32]]:
    """Return how far the lengths fall without each n-gram, (P, E) per document.

    The n-grams are the network's; the first begins at token `first`. A text shorter
    than one n-gram is deleted as a whole.
    """
    # An n-gram that may reach over the ends has at least one token inside.
    starts = [
        range(first, max(len(ids) - (size if first == 0 else 1), 0) + 1, stride)
        for ids in documents
    ]
    shortened = [
        keep_tokens(network, ids, outside(len(ids), start, start + size))
        for ids, places in zip(documents, starts, strict=True)
        for start in places
    ]
    lengths = document_lengths(network, [*documents, *shortened])  # (N + ΣP, E)
    whole, rest = lengths[: len(documents)], lengths[len(documents) :]
    ends = np.cumsum([len(places) for places in starts])[:-1]
    return [
        before - after
        for before, after in zip(whole, np.split(rest, ends), strict=True)
    ]


def outside(n_tokens: int, start: int, end: int) -> NDArray[np.bool_]:
    """Tell which tokens of a document lie outside an n-gram, (n_tokens,).

    >>> outside(4, -1, 2).tolist()
    [False, False, True, True]
    """
    places = np.arange(n_tokens)
    return (places < start) | (places >= end)
