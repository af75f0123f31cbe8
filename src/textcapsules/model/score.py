"""Score documents with a network: batched by length, in the order they were given."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from textcapsules.text.batch import epoch_batches, make_batch
from textcapsules.text.vocabulary import UNK_ID

__all__ = ["drop_unreadable", "score_documents"]


def drop_unreadable(documents: Sequence[NDArray]) -> list[NDArray]:
    """Empty the documents without a single known word: there is nothing to go by."""
    return [ids if (ids > UNK_ID).any() else ids[:0] for ids in documents]


@torch.inference_mode()
def score_documents(
    network: nn.Module, documents: Sequence[NDArray], *, batch_size: int | None = None
) -> NDArray[np.float32]:
    """Return the length of every class capsule, (N, n_classes), orphan left out."""
    was_training, device = network.training, next(network.parameters()).device
    if batch_size is None:  # few large batches on a GPU, where a launch costs most
        batch_size = 512 if device.type == "cuda" else 64
    network.eval()
    scores = np.zeros((len(documents), network.n_classes), dtype=np.float32)  # type: ignore[arg-type]
    lengths = [len(ids) for ids in documents]
    nothing = np.zeros((len(documents), 0), dtype=np.float32)  # no targets to carry
    for rows in epoch_batches(lengths, batch_size, seed=0, epoch=0, shuffle=False):
        batch = make_batch(documents, nothing, rows).to(device)
        scores[rows] = network(batch.ids, batch.mask).scores.float().cpu().numpy()
    network.train(was_training)
    return scores
