"""The plain truth: delete an n-gram, predict again, and see how far a length falls.

Deleting takes the words out of the text, whose rest closes up, as a reader would do it
and as the model may meet it. It needs one prediction an n-gram, so it is slow.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from textcapsules.explain.networks import device_of
from textcapsules.model.builder import System
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.score import drop_unreadable, score_documents
from textcapsules.text.batch import epoch_batches, make_batch

__all__ = ["document_lengths", "erase_ngrams"]

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
