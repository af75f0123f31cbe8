"""Vectors of word pieces that are learnt beside the states of an encoder.

The state of a piece tells what it means where it stands. A vector of its own tells
which piece it is, as in a network without an encoder: two views, which err on different
texts. Only pieces of the training texts have one; all others have zeros, so that what
was never seen says nothing.
"""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from textcapsules.text.pieces import FIRST_PIECE

__all__ = ["PieceVectors", "known_pieces"]

LIMIT = 0.25  # of the first values, as of random word vectors
NONE = 0  # the row of a piece without a vector


class PieceVectors(nn.Module):
    """Rows of `PieceTokenizer` (B, T) to vectors (B, T, V).

    >>> vectors = PieceVectors(torch.tensor([0, 1, 0, 2]), size=8)  # of four pieces
    >>> found = vectors(torch.tensor([[FIRST_PIECE, FIRST_PIECE + 1, 0]]))
    >>> found.shape, found.any(2).tolist()
    (torch.Size([1, 3, 8]), [[False, True, False]])
    """

    rows: Tensor

    def __init__(self, rows: Tensor, *, size: int) -> None:
        """Draw the vectors.

        Args:
            rows: (n_pieces,), the row of each piece's vector; 0 where it has none.
            size: V.
        """
        super().__init__()
        self.register_buffer("rows", rows)
        n_rows = int(rows.max()) + 1 if len(rows) else 1
        self.vectors = nn.Embedding(n_rows, size, padding_idx=NONE)
        nn.init.uniform_(self.vectors.weight, -LIMIT, LIMIT)
        nn.init.zeros_(self.vectors.weight[NONE])

    @property
    def size(self) -> int:
        """Return V."""
        return self.vectors.embedding_dim

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vector of each piece, zeros for padding and unknown pieces."""
        # Pieces that begin a sentence have numbers of their own, n_pieces higher.
        pieces = (ids - FIRST_PIECE) % len(self.rows)
        return self.vectors(torch.where(ids >= FIRST_PIECE, self.rows[pieces], NONE))


def known_pieces(documents: Iterable[NDArray], n_pieces: int) -> Tensor:
    """Return the rows of `PieceVectors` that know the pieces of these documents.

    >>> known_pieces([np.array([FIRST_PIECE + 3, FIRST_PIECE + 4 + 1])], 4).tolist()
    [0, 1, 0, 2]
    """
    is_known = np.zeros(n_pieces, dtype=bool)
    for ids in documents:
        is_known[(ids[ids >= FIRST_PIECE] - FIRST_PIECE) % n_pieces] = True
    return torch.from_numpy(np.cumsum(is_known) * is_known)
