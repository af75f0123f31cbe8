"""What usually stands on a pretrained encoder: pooled states and a linear layer.

`MeanLinear` has one vector per text, the mean of its states, as SetFit's second stage
has. `LabelAttention` has one per label: every label learns which states to look at
(Mullenbach et al., 2018), without competition between the labels.
"""

from typing import Any

import torch
from torch import Tensor, nn

from textcapsules.model.network import ClassOutput, Network

__all__ = ["LabelAttention", "MeanLinear"]


class MeanLinear(Network):
    """The mean of a text's states, dropout, a linear layer."""

    def __init__(
        self,
        embedding: nn.Module,
        *,
        size: int,
        n_classes: int,
        dropout: float = 0.5,
        several: bool = False,
    ) -> None:
        """Make the layer on states of `size` numbers; see `RecurrentNetwork`."""
        super().__init__(n_classes)
        self.embedding, self.several = embedding, several
        self.dropout, self.output = nn.Dropout(dropout), nn.Linear(size, n_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Rows (B, T) and their mask to the classes' logits (B, J)."""
        inside = mask.unsqueeze(2)  # (B, T, 1)
        total = (self.embedding(ids) * inside).sum(1)  # (B, E)
        mean = total / inside.sum(1).clamp(min=1)
        return ClassOutput(self.output(self.dropout(mean)), several=self.several)


class LabelAttention(MeanLinear):
    """A weighted mean of the states per label, and a learned product with it."""

    def __init__(self, embedding: nn.Module, **sizes: Any) -> None:
        """Make the layers; `sizes` are those of `MeanLinear`."""
        super().__init__(embedding, **sizes)
        self.query = nn.Linear(self.output.in_features, self.n_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Rows (B, T) and their mask to the classes' logits (B, J)."""
        states = self.dropout(self.embedding(ids))  # (B, T, E)
        shares = self.query(states).masked_fill(~mask.unsqueeze(2), -1e9)
        shares = shares.softmax(1) * mask.unsqueeze(2)  # (B, T, J), over the text
        means = torch.einsum("btj,bte->bje", shares, states)  # (B, J, E)
        logits = (means * self.output.weight).sum(2) + self.output.bias
        return ClassOutput(logits, several=self.several)
