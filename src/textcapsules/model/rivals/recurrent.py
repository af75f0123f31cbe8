"""LSTM and BiLSTM over word vectors.

The states are computed on packed sequences: neither direction ever reads padding, so a
text's scores do not depend on its batch.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from textcapsules.model.rivals.output import ClassOutput

__all__ = ["RecurrentNetwork", "word_states"]


def word_states(lstm: nn.LSTM, vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the states of every word (B, T, S), zero at padding, and the last (B, S).

    A text without words counts as one zero vector: packing knows no empty sequence.
    """
    lengths = mask.sum(1).clamp(min=1).cpu()  # packing wants them on the host
    packed = pack_padded_sequence(
        vectors, lengths, batch_first=True, enforce_sorted=False
    )
    outputs, (final, _) = lstm(packed)
    states, _ = pad_packed_sequence(
        outputs, batch_first=True, total_length=vectors.shape[1]
    )
    n_directions = 2 if lstm.bidirectional else 1
    return states, torch.cat(list(final[-n_directions:]), 1)


class RecurrentNetwork(nn.Module):
    """Embedding, one LSTM layer in one or both directions, pooling, linear output."""

    capturable = False  # packing reads the lengths on the host

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
        self.lstm = nn.LSTM(
            embedding.embedding_dim,
            hidden_size,
            batch_first=True,
            bidirectional=bidirectional,
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size * (1 + bidirectional), n_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Word numbers (B, T) and their mask to the classes' logits."""
        states, last = word_states(self.lstm, self.embedding(ids), mask)  # (B, T, S)
        pooled = self.pool(states, last, mask)  # (B, S)
        return ClassOutput(self.output(self.dropout(pooled)), several=self.several)

    def pool(self, states: Tensor, last: Tensor, mask: Tensor) -> Tensor:
        """Return one vector a text."""
        inside = mask.unsqueeze(2)  # (B, T, 1)
        if self.pooling == "mean":
            total = (states * inside).sum(1)
            return total / inside.sum(1).clamp(min=1)
        if self.pooling == "max":
            # A state lies in (-1, 1); where there is no word at all this stays finite.
            return states.masked_fill(~inside, -1.0).amax(1)
        return last
