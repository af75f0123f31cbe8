"""What is fitted at once, not trained by gradient: a common face for such systems."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassicSystem"]


class ClassicSystem(ABC):
    """A system that reads documents of word numbers and gives scores from 0 to 1."""

    n_classes: int

    @abstractmethod
    def fit(self, documents: Sequence[NDArray], targets: NDArray) -> "ClassicSystem":
        """Learn from documents and their labels, targets (N, J)."""

    @abstractmethod
    def scores(self, documents: Sequence[NDArray]) -> NDArray[np.float32]:
        """Return every class's score for every document, (N, J)."""

    @abstractmethod
    def n_parameters(self) -> int:
        """Return how many numbers were learnt."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write what was learnt to one file."""

    @abstractmethod
    def load(self, path: Path) -> None:
        """Take what `save` wrote; any error of the file's format is a ValueError."""
