"""The state after the last finished epoch, kept so that Ctrl-C loses no epoch.

Ctrl-C mostly comes in the middle of an epoch, when the network's own weights are no
longer those that the epoch before ended with; so a copy is kept in memory.
"""

from pathlib import Path
from types import TracebackType

from torch import Tensor

from textcapsules.training.checkpoint import Progress, write_checkpoint

__all__ = ["LastEpoch"]

LARGEST = 200_000_000  # bytes of a copy; a larger one takes too much memory and time


class LastEpoch:
    """As a context, writes the epoch kept last as a checkpoint when Ctrl-C comes."""

    def __init__(self, path: Path, run: str | None) -> None:
        self.path, self.run = path, run
        self.kept: tuple[dict[str, Tensor], Progress] | None = None

    def keep(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Copy the state after an epoch, unless it is too large."""
        if sum(tensor.nbytes for tensor in tensors.values()) > LARGEST:
            return
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        # At once: Ctrl-C while copying leaves the epoch before.
        self.kept = copies, progress

    def __enter__(self) -> "LastEpoch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt) and self.kept is not None:
            write_checkpoint(self.path, *self.kept, self.run)
