"""From token ids to padded tensors, and the order in which an epoch visits the texts.

Texts of like length share a batch, so that little of a batch is padding. Padding stands
on the right and is marked in the mask; a text without tokens is a row of padding.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Batch", "epoch_batches", "make_batch"]

# Batches sorted together: enough for even lengths, few enough to keep epochs different.
_BATCHES_IN_CHUNK = 50


class Batch(NamedTuple):
    """Some texts as tensors. B texts, T tokens, J classes.

    Documents with structure, (T, F) arrays of word ids and further columns, make ids
    of shape (B, T, F).
    """

    ids: Tensor  # (B, T) int64, 0 where there is padding
    mask: Tensor  # (B, T) bool, True where there is a token
    targets: Tensor  # (B, J) float32, 1 where the text has the label
    rows: Tensor  # (B,) int64, which texts these are

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on a device, copied while other work goes on if possible."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


def make_batch(
    documents: Sequence[np.ndarray],
    targets: np.ndarray | Tensor,
    rows: Sequence[int] | np.ndarray,
    pad_to: int | None = None,
) -> Batch:
    """Put the documents at `rows` together.

    Args:
        documents: token ids of every text, as `TextTokenizer.encode` gives them.
        targets: (number of documents, J), 1 where a text has a label.
        rows: which documents to take.
        pad_to: T; longer documents are cut. If None, the length of the longest one,
            and at least 1.
    """
    if pad_to is not None and pad_to < 1:
        raise ValueError(f"pad_to must be at least 1; got {pad_to}.")
    rows = np.asarray(rows, dtype=np.int64)
    selected = [documents[row][:pad_to] for row in rows]
    lengths = np.array([len(ids) for ids in selected], dtype=np.int64)  # (B,)
    n_tokens = pad_to or max(1, lengths.max(initial=1))
    mask = np.arange(n_tokens) < lengths[:, None]  # (B, T)
    columns = selected[0].shape[1:] if selected else ()
    ids = np.zeros((*mask.shape, *columns), dtype=np.int64)  # (B, T) or (B, T, F)
    if selected:
        ids[mask] = np.concatenate(selected)
    places = torch.from_numpy(rows)
    labels = torch.as_tensor(targets, dtype=torch.float32)[places]  # (B, J)
    return Batch(torch.from_numpy(ids), torch.from_numpy(mask), labels, places)


def epoch_batches(
    lengths: Sequence[int] | np.ndarray,
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    shuffle: bool = True,
) -> list[np.ndarray]:
    """Return the row numbers of each batch; every row comes exactly once.

    With `shuffle`, the order depends on `seed` and `epoch` alone: rows are shuffled,
    sorted by length within chunks, cut into batches, and the batches shuffled. Without,
    rows come sorted by length, which gives the smallest padding, for scoring.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    lengths = np.asarray(lengths)
    if not shuffle:
        return _cut(np.argsort(lengths, kind="stable"), batch_size)
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    batches = [
        batch
        for chunk in _cut(order, batch_size * _BATCHES_IN_CHUNK)
        for batch in _cut(chunk[np.argsort(lengths[chunk], kind="stable")], batch_size)
    ]
    return [batches[number] for number in random.permutation(len(batches))]


def _cut(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
