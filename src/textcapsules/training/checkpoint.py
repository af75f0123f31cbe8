"""The state of a run after an epoch, in one file that is replaced atomically.

Order, dropout and joined texts of an epoch follow from (seed, epoch) alone. The whole
state is therefore the weights, their running average if there is one, Adam's moments
and the records so far. A run that was killed at any moment and resumed ends with the
same weights as one that was not.

Checkpoints are written from time to time. So that Ctrl-C loses no epoch, `LastEpoch`
also keeps a copy of the state in memory: in the middle of an epoch, the network's own
weights are no longer those that the epoch before ended with.
"""

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from textcapsules.base.errors import ModelFolderError
from textcapsules.base.files import check_regular, write_tensors
from textcapsules.training.optimise import AveragedWeights

__all__ = [
    "Best",
    "LastEpoch",
    "Progress",
    "epochs_done",
    "read_checkpoint",
    "tensors_of",
    "write_checkpoint",
]

# The keys of an epoch's record that the rest of the run reads.
RECORD_KEYS = {"epoch", "dev_score", "dev_accuracy", "train_seconds", "dev_seconds"}
MAX_COPY = 200_000_000  # bytes; a larger copy takes too much memory and time
KNOWN_FAULTS = (
    SafetensorError,
    OSError,
    KeyError,
    ValueError,
    RuntimeError,  # includes RecursionError
    TypeError,
    AttributeError,
)


class Best(NamedTuple):
    """The best epoch so far."""

    epoch: int
    score: float
    weights: dict[str, Tensor]


class Progress(NamedTuple):
    """Where a run stands after some epochs."""

    records: list[dict[str, Any]]  # one per epoch
    best: Best | None


def tensors_of(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: AveragedWeights | None = None,
) -> dict[str, Tensor]:
    """Return weights, average and Adam's moments, not copied: training changes them."""
    tensors = {f"network.{name}": t for name, t in network.state_dict().items()}
    for index, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{key}": value for key, value in moments.items()}
    if average is not None:
        tensors |= {f"average.{name}": mean for name, mean in average.mean.items()}
    return tensors


def write_checkpoint(
    path: Path,
    tensors: dict[str, Tensor],
    progress: Progress,
    run: str | None = None,
) -> None:
    """Write the state of a run: its `tensors_of`, its progress and its id `run`."""
    state: dict[str, Any] = {"run": run, "records": progress.records}
    if progress.best is not None:
        state |= {"best_epoch": progress.best.epoch, "best_score": progress.best.score}
        best = {f"best.{name}": t for name, t in progress.best.weights.items()}
        tensors = {**tensors, **best}
    tensors = {name: t.detach().contiguous() for name, t in tensors.items()}
    text = json.dumps(state)
    # The sum is in the file itself, since two files cannot be replaced at once.
    metadata = {"state": text, "sha256": content_sum(tensors, text)}
    write_tensors(path, tensors, metadata)


def read_checkpoint(
    path: Path,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    run: str | None = None,
    average: AveragedWeights | None = None,
) -> Progress:
    """Restore network, optimiser and average in place, and return the progress."""
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        expected = metadata.get("sha256")  # none in those of earlier versions
        if expected is not None and expected != content_sum(tensors, metadata["state"]):
            raise ValueError("another content than was written (its SHA-256 differs)")
        state = json.loads(metadata["state"])
        if state.get("run") != run:
            raise ValueError("one of another run")
        network.load_state_dict(_part(tensors, "network."))
        _restore_adam(optimiser, _part(tensors, "adam."))
        if average is not None:
            for name, mean in average.mean.items():
                mean.copy_(tensors[f"average.{name}"])
        return _progress(state, _part(tensors, "best."))
    except KNOWN_FAULTS as error:
        raise _damaged(path, error) from error


def epochs_done(path: Path) -> int:
    """Return how many epochs a checkpoint has done; 0 if there is no checkpoint."""
    if not path.exists():
        return 0
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            return len(json.loads((file.metadata() or {})["state"])["records"])
    except KNOWN_FAULTS as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ModelFolderError:
    text = getattr(error, "strerror", None) or str(error) or repr(error)
    reason = text.splitlines()[-1].strip().rstrip(".")
    return ModelFolderError(
        f"{path} must be a checkpoint of this run; got: {reason}. "
        "Train again with --overwrite."
    )


def content_sum(tensors: dict[str, Tensor], state: str) -> str:
    """Return the SHA-256 of all that a checkpoint holds."""
    digest = hashlib.sha256(state.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        content: Any = tensor.cpu().reshape(-1).view(torch.uint8).numpy()
        digest.update(content)
    return digest.hexdigest()


def _progress(state: dict[str, Any], weights: dict[str, Tensor]) -> Progress:
    """Return the progress that a state describes; refuse an impossible one."""
    records = state.get("records")
    best, score = state.get("best_epoch", -1), state.get("best_score")
    if not isinstance(records, list) or not all(
        isinstance(record, dict) and record.keys() >= RECORD_KEYS for record in records
    ):
        raise ValueError("a state without the records of its epochs")
    if best not in range(len(records)) or not isinstance(score, float | int):
        raise ValueError("a state without its best epoch")
    return Progress(records, Best(best, score, weights))


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _restore_adam(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        moments.setdefault(int(index), {})[key] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": moments, "param_groups": groups})


class LastEpoch:
    """As a context, writes a checkpoint of the last finished epoch on Ctrl-C."""

    def __init__(self, path: Path, run: str | None) -> None:
        self.path, self.run = path, run
        self.state: tuple[dict[str, Tensor], Progress] | None = None

    def keep(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Copy the state after an epoch, unless it is too large."""
        if sum(tensor.nbytes for tensor in tensors.values()) > MAX_COPY:
            return
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        # One assignment: Ctrl-C while copying leaves the state before.
        self.state = copies, progress

    def __enter__(self) -> "LastEpoch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt) and self.state is not None:
            write_checkpoint(self.path, *self.state, self.run)
