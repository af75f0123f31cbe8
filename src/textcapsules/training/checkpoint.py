"""Everything needed to go on with a run, in one file that is replaced atomically.

Order, dropout and joined texts of an epoch follow from (seed, epoch) alone, so weights,
Adam's moments and the records so far are the whole state: a run killed at any moment
and resumed ends with the weights of the run that was not.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from textcapsules.errors import ModelFolderError
from textcapsules.files import write_tensors

__all__ = ["Best", "Progress", "epochs_done", "read_checkpoint", "write_checkpoint"]


class Best(NamedTuple):
    """The epoch kept so far."""

    epoch: int
    score: float
    weights: dict[str, Tensor]


class Progress(NamedTuple):
    """Where a run stands after some epochs."""

    records: list[dict[str, Any]]  # one an epoch
    best: Best | None


def write_checkpoint(
    path: Path, network: nn.Module, optimiser: torch.optim.Optimizer, progress: Progress
) -> None:
    """Write the state of a run."""
    tensors = {f"network.{name}": t for name, t in network.state_dict().items()}
    for index, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{key}": value for key, value in moments.items()}
    state: dict[str, Any] = {"records": progress.records}
    if progress.best is not None:
        state |= {"best_epoch": progress.best.epoch, "best_score": progress.best.score}
        tensors |= {f"best.{name}": t for name, t in progress.best.weights.items()}
    write_tensors(
        path,
        {name: t.detach().contiguous() for name, t in tensors.items()},
        metadata={"state": json.dumps(state)},
    )


def read_checkpoint(
    path: Path, network: nn.Module, optimiser: torch.optim.Optimizer
) -> Progress:
    """Restore network and optimiser in place, and return the progress."""
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {})["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        network.load_state_dict(_part(tensors, "network."))
        _restore_adam(optimiser, _part(tensors, "adam."))
        best = None
        if "best_epoch" in state:
            weights = _part(tensors, "best.")
            best = Best(state["best_epoch"], state["best_score"], weights)
        return Progress(state["records"], best)
    except (SafetensorError, OSError, KeyError, ValueError, RuntimeError) as error:
        raise _damaged(path, error) from error


def epochs_done(path: Path) -> int:
    """Return how many epochs a checkpoint has behind it; none where there is none."""
    if not path.is_file():
        return 0
    try:
        with safe_open(path, framework="pt") as file:
            return len(json.loads((file.metadata() or {})["state"])["records"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ModelFolderError:
    reason = (str(error) or repr(error)).splitlines()[-1].strip().rstrip(".")
    return ModelFolderError(
        f"{path} must be a checkpoint of this run; got: {reason}. "
        "Train again with --overwrite."
    )


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
