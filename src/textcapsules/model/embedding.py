"""Word vectors: rows that training sets, and after them fixed ones of further words.

A file of word vectors knows many more words than the training texts have. They get rows
past the trained ones, as the file has them, in half precision. Those rows are a buffer
and no part of `state_dict`: no optimiser, checkpoint or copy of the best weights ever
holds them, and a model folder holds them once (see `saved_tensors`).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["EXTRA", "WordEmbedding", "saved_tensors"]

EXTRA = "embedding.extra"  # the fixed rows' name in a model folder


class WordEmbedding(nn.Embedding):
    """An embedding whose numbers past the trained rows stand for fixed ones."""

    extra: Tensor  # (n_extra, V) float16
    # Whether training texts have words of theirs; where none has, a step is spared.
    extra_in_training = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        nothing = torch.zeros(0, self.embedding_dim, dtype=torch.float16)
        self.register_buffer("extra", nothing, persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Word numbers of any shape to vectors, float32."""
        spared = self.training and not self.extra_in_training
        if spared or not len(self.extra):
            return super().forward(input)
        is_extra = input >= self.num_embeddings
        own = super().forward(input.masked_fill(is_extra, 0))
        others = F.embedding((input - self.num_embeddings).clamp(min=0), self.extra)
        return torch.where(is_extra.unsqueeze(-1), others.to(own.dtype), own)


def saved_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return all that a model folder must hold of a network."""
    tensors = network.state_dict()
    embedding = getattr(network, "embedding", None)
    if isinstance(embedding, WordEmbedding) and len(embedding.extra):
        tensors[EXTRA] = embedding.extra
    return tensors
