"""A run: options in, a model folder out; interrupted at any moment, it can go on."""

import hashlib
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from textcapsules import __version__
from textcapsules.classifier import (
    Labels,
    TextClassifier,
    config_json,
    pick_device,
    read_run_config,
)
from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus
from textcapsules.errors import ModelFolderError, TextCapsulesError
from textcapsules.model.builder import System
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.rivals.classic import ClassicSystem
from textcapsules.sums import check_sums, read_record, write_record
from textcapsules.training.checkpoint import (
    Progress,
    read_checkpoint,
    write_checkpoint,
)
from textcapsules.training.fit import fit_system
from textcapsules.training.folder import (
    CHECKPOINT,
    TENSORBOARD,
    check_folder,
    clear,
    tidy,
)
from textcapsules.training.loop import Step, Trainer
from textcapsules.training.prepare import Prepared, prepare
from textcapsules.training.selection import DevSet
from textcapsules.training.start import scale_lengths
from textcapsules.training.wake import awake

__all__ = ["resume", "train"]

Watch = Callable[[dict[str, Any]], None]


def train(
    config: RunConfig,
    folder: Path | str,
    *,
    corpus: Corpus | None = None,
    overwrite: bool = False,
    tensorboard: bool = False,
    on_step: Callable[[Step], None] | None = None,
    on_epoch: Watch | None = None,
) -> TextClassifier:
    """Train as `config` says and write the model to `folder`.

    Args:
        config: the run's options.
        folder: a new or empty folder, or one of an earlier run with `overwrite`.
        corpus: the texts, where they are not those that the options name; such a run
            cannot be resumed.
        overwrite: replace the earlier run in that folder.
        tensorboard: write the epochs' figures for TensorBoard too.
        on_step: called after every batch.
        on_epoch: called with the record of every epoch.
    """
    folder = Path(folder)
    check_folder(folder, overwrite)
    device = pick_device(config.train.device)
    if tensorboard:
        summary_writer()
    # All that can fail, before an earlier run is removed.
    with awake(device):
        prepared = prepare(config, corpus)
    if folder.is_dir():
        clear(folder)
    options = hashlib.sha256(config_json(prepared.config)).hexdigest()
    start = {
        "finished": False,
        "run": run_mark(options, prepared),
        "tensorboard": tensorboard,
        **prepared.facts,
    }
    write_record(folder, start, {"config.json": options})
    classifier_of(prepared).save_setup(folder)
    return go_on(prepared, folder, start, on_step, on_epoch)


def resume(
    folder: Path | str,
    *,
    on_step: Callable[[Step], None] | None = None,
    on_epoch: Watch | None = None,
) -> TextClassifier:
    """Go on with an interrupted run; a finished one is only loaded."""
    folder = Path(folder)
    config = read_run_config(folder)
    start, sums = read_record(folder)
    check_sums(folder, sums, ["config.json"])
    if start.get("finished"):
        classifier = TextClassifier.load(folder)
        check_record(folder, start)
        tidy(folder)
        return classifier
    with awake(pick_device(config.train.device)):
        prepared = prepare(config)
    if prepared.facts["fingerprint"] != start.get("fingerprint"):
        raise ModelFolderError(
            f"{folder} must be resumed on the data it was started on; got other texts "
            f"from {config.data.source}. Restore them, or train anew with --overwrite."
        )
    return go_on(prepared, folder, start, on_step, on_epoch)


def check_record(folder: Path, record: dict[str, Any]) -> None:
    """Refuse a finished run whose record does not tell how it went."""
    epochs, best = record.get("epochs"), record.get("best_epoch")
    if not isinstance(epochs, list) or best not in range(1, len(epochs) + 1):
        raise ModelFolderError(
            f"{folder / 'training.json'} must hold the epochs of a finished run; got "
            f"{epochs!r:.40}. Restore the folder."
        )


def go_on(
    prepared: Prepared,
    folder: Path,
    start: dict[str, Any],
    on_step: Callable[[Step], None] | None,
    on_epoch: Watch | None,
) -> TextClassifier:
    """Train from the last checkpoint, or from the start, to the end."""
    config = prepared.config
    dev = DevSet(config, prepared.dev)

    def watch(record: dict[str, Any]) -> None:
        if start.get("tensorboard"):
            log_tensorboard(folder / TENSORBOARD, record)
        if on_epoch is not None:
            on_epoch(record)

    if isinstance(prepared.network, ClassicSystem):
        progress = fit_system(config, prepared.network, prepared.train, dev)
        watch(progress.records[0])
    else:
        network = prepared.network.to(pick_device(config.train.device))
        mark = start.get("run")
        progress = run_epochs(prepared, network, dev, folder, mark, on_step, watch)
    return finish(prepared, progress, dev, folder, start)


def run_epochs(
    prepared: Prepared,
    network: nn.Module,
    dev: DevSet,
    folder: Path,
    mark: str | None,
    on_step: Callable[[Step], None] | None,
    watch: Watch,
) -> Progress:
    """Train a network epoch by epoch, with a checkpoint now and then."""
    config, device = prepared.config, next(network.parameters()).device
    goal, begun = config.train.start_length, (folder / CHECKPOINT).exists()
    if goal and isinstance(network, CapsuleNetwork) and not begun:
        documents = prepared.train.documents
        scale_lengths(network, documents, goal, seed=config.train.seed)
    trainer = Trainer(config, network, prepared.train, dev, device)
    if begun:
        trainer.progress = read_checkpoint(
            folder / CHECKPOINT, network, trainer.optimiser, mark
        )
    saved = time.monotonic()
    with deterministic():
        for record in trainer.epochs(on_step):
            if time.monotonic() - saved >= config.train.checkpoint_seconds:
                write_checkpoint(
                    folder / CHECKPOINT,
                    network,
                    trainer.optimiser,
                    trainer.progress,
                    mark,
                )
                saved = time.monotonic()
            watch(record)
    return trainer.progress


def finish(
    prepared: Prepared,
    progress: Progress,
    dev: DevSet,
    folder: Path,
    start: dict[str, Any],
) -> TextClassifier:
    """Take the best epoch's weights, calibrate them, and write the model folder."""
    (records, best), network = progress, prepared.network
    assert best is not None  # there is at least one epoch
    if isinstance(network, ClassicSystem):
        start = {**start, "parameters": network.n_parameters()}
    else:
        network.load_state_dict(best.weights, strict=False)  # frozen ones stay
        network.eval()
    calibration = dev.calibrate(network)
    classifier = classifier_of(prepared, calibration["threshold"])
    classifier.record = {
        **start,
        "finished": True,
        "best_epoch": best.epoch + 1,
        "calibration": calibration,
        "epochs": records,
        "seconds": round(
            sum(r["train_seconds"] + r["dev_seconds"] for r in records), 3
        ),
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **environment(network),
    }
    classifier.save(folder)
    tidy(folder)
    return classifier


def run_mark(options: str, prepared: Prepared) -> str:
    """Return what tells a run from others: the sum of its options and its data."""
    return hashlib.sha256(
        f"{options} {prepared.facts['fingerprint']}".encode()
    ).hexdigest()


def classifier_of(prepared: Prepared, threshold: float = 0.5) -> TextClassifier:
    """Return the run's network with its vocabulary and labels."""
    names = prepared.corpus.labels
    labels = Labels(names, (threshold,) * len(names), prepared.config.train.task)
    return TextClassifier(prepared.config, prepared.tokenizer, labels, prepared.network)


def environment(network: System) -> dict[str, Any]:
    """Return what the figures were made on."""
    device = torch.device("cpu")
    if not isinstance(network, ClassicSystem):
        device = next(network.parameters()).device
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {
            "textcapsules": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }


class deterministic:  # noqa: N801 - a context manager, named as one reads it
    """Ask torch for the same result every time; where it has none, it goes on."""

    def __enter__(self) -> None:
        self.before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)

    def __exit__(self, *_: object) -> None:
        torch.use_deterministic_algorithms(self.before, warn_only=True)


def summary_writer() -> Any:
    """Import TensorBoard's writer, an extra."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise TextCapsulesError(
            "tensorboard must be installed to write its logs; got none. "
            "Run `pip install 'textcapsules[tensorboard]'`."
        ) from error
    return SummaryWriter


def log_tensorboard(folder: Path, record: dict[str, Any]) -> None:
    """Write one epoch's figures as TensorBoard scalars."""
    with summary_writer()(str(folder), purge_step=record["epoch"]) as writer:
        for name, value in record.items():
            if name != "epoch":
                writer.add_scalar(name, value, record["epoch"])
