"""What every baseline network returns, in the manner of a capsule network's output."""

from typing import NamedTuple

from torch import Tensor

__all__ = ["ClassOutput"]


class ClassOutput(NamedTuple):
    """Logits of the classes, and what the network adds to the training loss."""

    logits: Tensor  # (B, J)
    penalty: Tensor | None = None  # (), added to the loss in training
    several: bool = False  # whether a text may have several classes

    @property
    def scores(self) -> Tensor:
        """Return probabilities (B, J): of each class alone, or of one among all."""
        return self.logits.sigmoid() if self.several else self.logits.softmax(1)

    def lengths(self, *, orphan: bool) -> Tensor:
        """Return what the loss reads, the logits; no baseline has an orphan."""
        del orphan
        return self.logits
