"""LSTM and BiLSTM over word vectors.

Every direction reads a text from its own first word on, padding after the last: the
states of the words never depend on it, nor a text's scores on its batch. Packed
sequences would do the same, but their lengths must be known on the host, and a training
step would have to wait for them.
"""

import torch
from torch import Tensor, nn

from textcapsules.model.rivals.output import ClassOutput

__all__ = ["RecurrentNetwork", "last_states", "reversal"]


def reversal(mask: Tensor) -> Tensor:
    """Return the places (B, T) of the words from last to first, padding where it is."""
    place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - place, place)


def last_states(states: Tensor, mask: Tensor) -> Tensor:
    """Return the states (B, H) at the last word read, of states (B, T, H).

    A text without words has read one word of padding.
    """
    last = (mask.sum(1) - 1).clamp(min=0)  # (B,)
    return states[torch.arange(len(states), device=states.device), last]


class RecurrentNetwork(nn.Module):
    """Embedding, one LSTM layer in one or both directions, pooling, linear output."""

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        hidden_size: int,
        n_classes: int,
        bidirectional: bool,
        pooling: str = "last",
        dropout: float = 0.5,
        several: bool = False,
    ) -> None:
        """Make the layers.

        Args:
            embedding: of V features.
            hidden_size: of each direction.
            n_classes: J.
            bidirectional: read the text backwards too.
            pooling: `last` state of each direction, `mean` or `max` over the words.
            dropout: share of pooled features dropped in training.
            several: whether a text may have several classes.
        """
        super().__init__()
        self.embedding, self.n_classes = embedding, n_classes
        self.pooling, self.several = pooling, several
        self.lstms = nn.ModuleList(
            nn.LSTM(embedding.embedding_dim, hidden_size, batch_first=True)
            for _ in range(2 if bidirectional else 1)
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size * (1 + bidirectional), n_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Word numbers (B, T) and their mask to the classes' logits."""
        vectors = self.embedding(ids)  # (B, T, V)
        back = reversal(mask).unsqueeze(2)  # (B, T, 1)
        parts = []
        for way, lstm in enumerate(self.lstms):
            read = vectors.gather(1, back.expand_as(vectors)) if way else vectors
            parts.append(self.pool(lstm(read)[0], mask))
        pooled = torch.cat(parts, 1)  # (B, S)
        return ClassOutput(self.output(self.dropout(pooled)), several=self.several)

    def pool(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return one vector a text of one direction's states (B, T, H)."""
        inside = mask.unsqueeze(2)  # (B, T, 1)
        if self.pooling == "mean":
            total = (states * inside).sum(1)
            return total / inside.sum(1).clamp(min=1)
        if self.pooling == "max":
            # A state lies in (-1, 1); where there is no word at all this stays finite.
            return states.masked_fill(~inside, -1.0).amax(1)
        return last_states(states, mask)
