"""A run: from options to a model folder; it can be interrupted and resumed anytime."""

import hashlib
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from textcapsules import __version__
from textcapsules.base.errors import (
    ConfigError,
    ModelFolderError,
    TextCapsulesError,
    collect_warnings,
    warn,
)
from textcapsules.base.sums import check_sums, read_record, write_record
from textcapsules.config import CLASSIC, RunConfig
from textcapsules.data.example import Corpus
from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.builder import System
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.classifier import (
    Labels,
    TextClassifier,
    config_json,
    encoder_of,
    pick_device,
    read_run_config,
    write_config,
)
from textcapsules.model.network import Network
from textcapsules.reasons.choice import measure_reasons
from textcapsules.text.encoder_training import LearningEncoder
from textcapsules.training.ahead import compile_ahead
from textcapsules.training.calibrate import UNCALIBRATED
from textcapsules.training.checkpoint import (
    LastEpoch,
    Progress,
    epochs_done,
    read_checkpoint,
    write_checkpoint,
)
from textcapsules.training.contrast import warm_up
from textcapsules.training.folder import (
    CHECKPOINT,
    TENSORBOARD,
    check_folder,
    check_unlocked,
    clear,
    locked,
    tidy,
)
from textcapsules.training.loop import Step, Trainer, fit_system
from textcapsules.training.machine import awake, enough_memory
from textcapsules.training.optimise import changes_by_step
from textcapsules.training.outside import outside_rule, repeats_itself
from textcapsules.training.prepare import Prepared, prepare
from textcapsules.training.selection import DevSet
from textcapsules.training.start import scale_lengths
from textcapsules.training.views import share_views
from textcapsules.training.words import add_word_scores

__all__ = ["Measure", "OnEncode", "OnEpoch", "OnStep", "Stop", "resume", "train"]

OnStep = Callable[[Step], None]
OnEpoch = Callable[[dict[str, Any]], None]
OnEncode = Callable[[int, int], None]  # word pieces encoded, and all of them
Measure = Callable[[Prepared, Network], dict[str, float]]
Stop = Callable[[], bool]


def train(
    config: RunConfig,
    folder: Path | str,
    *,
    corpus: Corpus | None = None,
    on_encoder: RunConfig | None = None,
    overwrite: bool = False,
    tensorboard: bool = False,
    keep_checkpoint: bool = False,
    on_step: OnStep | None = None,
    on_epoch: OnEpoch | None = None,
    on_encode: OnEncode | None = None,
    measure: Measure | None = None,
    stop: Stop | None = None,
    test_reasons: bool = True,
    keep_model: bool = True,
) -> TextClassifier:
    """Train as `config` says and write the model to `folder`.

    Args:
        config: the run's options.
        folder: a new or empty folder, or one of an earlier run with `overwrite`.
        corpus: the texts, if they are not those that the options name; such a run
            cannot be resumed.
        on_encoder: the options in place of `config` if that leaves the encoder to the
            texts (`auto`) and one is taken; see `encoder_choice`.
        overwrite: replace the earlier run in that folder.
        tensorboard: write the epochs' figures for TensorBoard too.
        keep_checkpoint: leave the checkpoint in the folder of the finished run, so
            that `resume` can add epochs.
        on_step: called after every batch.
        on_epoch: called with the record of every epoch.
        on_encode: called while a pretrained encoder reads the texts, before the epochs.
        measure: called with the network after every epoch; the epoch's record keeps
            what it returns as `measured`, and nothing is chosen by it.
        stop: asked after every epoch whether to end the run there; the best epoch so
            far is kept.
        test_reasons: find out in the end which method explains the model best, which
            takes some seconds; pointless where nobody will ask for reasons.
        keep_model: write the trained model to the folder; pointless where what is
            returned is all that will be used, and an encoder has hundreds of megabytes.
    """
    folder = Path(folder)
    check_unlocked(folder)
    check_folder(folder, overwrite)
    device = pick_device(config.train.device)
    if tensorboard:
        summary_writer()
    # What can fail comes before an earlier run is removed.
    with awake(device), enough_memory(config), collect_warnings() as warnings:
        prepared = prepare(config, corpus, on_encoder)
    with locked(folder):
        check_folder(folder, overwrite)  # again: another run may have used it meanwhile
        clear(folder)
        options = hashlib.sha256(config_json(prepared.config)).hexdigest()
        start = {
            "finished": False,
            "run": run_id(options, prepared),
            "tensorboard": tensorboard,
            "keep_checkpoint": keep_checkpoint,
            **prepared.facts,
            "warnings": warnings,
        }
        write_record(folder, start, {"config.json": options})
        classifier_of(prepared).save_setup(folder)
        start |= {} if test_reasons else {"test_reasons": False}
        start |= {} if keep_model else {"keep_model": False}
        return run_to_end(
            prepared, folder, start, on_step, on_epoch, on_encode, measure, stop
        )


def resume(
    folder: Path | str,
    *,
    epochs: int | None = None,
    on_step: OnStep | None = None,
    on_epoch: OnEpoch | None = None,
    on_encode: OnEncode | None = None,
) -> TextClassifier:
    """Continue an interrupted run; a finished one is only loaded.

    Args:
        folder: the run's folder.
        epochs: maximum number of epochs in all, in place of the run's own; it ends with
            the weights of an uninterrupted run of that many. A finished run needs its
            checkpoint for this (`keep_checkpoint` of `train`). A run whose learning
            rate changes by step must keep the number that it was begun with.
        on_step: called after every batch.
        on_epoch: called with the record of every epoch.
        on_encode: called while a pretrained encoder reads the texts.
    """
    folder = Path(folder)
    config = read_run_config(folder)
    check_unlocked(folder)
    start, sums = read_record(folder)
    check_sums(folder, sums, ["config.json"])
    if start.get("finished") and epochs in (None, config.train.epochs):
        classifier = TextClassifier.load(folder)
        check_record(folder, start)
        tidy(folder, keep_checkpoint=bool(start.get("keep_checkpoint")))
        return classifier
    with locked(folder):
        if epochs is not None:
            config = with_epochs(folder, config, start, epochs)
        with awake(pick_device(config.train.device)), enough_memory(config):
            prepared = prepare(config)
        if prepared.facts["fingerprint"] != start.get("fingerprint"):
            raise ModelFolderError(
                f"{folder} must be resumed on the data it was started on; got other "
                f"texts from {config.data.source}. Restore them, or train anew with "
                "--overwrite."
            )
        if epochs is not None:
            # In this order: a run killed in between can still be resumed.
            start = {**start, "finished": False}
            write_record(folder, start, sums)
            write_config(folder, prepared.config)
        return run_to_end(prepared, folder, start, on_step, on_epoch, on_encode)


def with_epochs(
    folder: Path, config: RunConfig, start: dict[str, Any], epochs: int
) -> RunConfig:
    """Return a run's options with another number of epochs, if that is possible."""
    if config.model.architecture in CLASSIC:
        raise ConfigError(
            f"epochs must be left out for {config.model.architecture}, which is fitted "
            f"in one pass; got {epochs}."
        )
    checkpoint = folder / CHECKPOINT
    if start.get("finished") and not checkpoint.is_file():
        raise ModelFolderError(
            f"{folder} must have its checkpoint to be given other epochs; got a "
            "finished run, which has removed it. Train again with --epochs "
            f"{epochs} --overwrite, and with --keep-checkpoint to add epochs later."
        )
    if epochs < (done := epochs_done(checkpoint)):
        raise ConfigError(
            f"epochs must be at least the {done} that the run has done; got {epochs}."
        )
    if done and epochs != config.train.epochs and changes_by_step(config.train):
        raise ConfigError(
            f"epochs must be {config.train.epochs}, as the run was begun: the learning "
            "rate of its steps (--schedule, --warmup) follows from it; got "
            f"{epochs}. Leave out --epochs, or train again with --epochs {epochs} "
            "--overwrite."
        )
    return config.replace(train={"epochs": epochs})


def check_record(folder: Path, record: dict[str, Any]) -> None:
    """Refuse a finished run whose record lacks its epochs."""
    epochs, best = record.get("epochs"), record.get("best_epoch")
    if not isinstance(epochs, list) or best not in range(1, len(epochs) + 1):
        raise ModelFolderError(
            f"{folder / 'training.json'} must hold the epochs of a finished run; got "
            f"{epochs!r:.40}. Restore the folder."
        )


def run_to_end(
    prepared: Prepared,
    folder: Path,
    start: dict[str, Any],
    on_step: OnStep | None,
    on_epoch: OnEpoch | None,
    on_encode: OnEncode | None = None,
    measure: Measure | None = None,
    stop: Stop | None = None,
) -> TextClassifier:
    """Train from the last checkpoint, or from the start, to the end."""
    config = prepared.config
    dev = DevSet(config, prepared.dev, n_pieces=prepared.n_pieces)

    def after_epoch(record: dict[str, Any]) -> None:
        if start.get("tensorboard"):
            log_tensorboard(folder / TENSORBOARD, record)
        if measure is not None and isinstance(prepared.network, Network):
            record["measured"] = measure(prepared, prepared.network)
        if on_epoch is not None:
            on_epoch(record)

    with LastEpoch(folder / CHECKPOINT, start.get("run")) as last:
        with enough_memory(config):
            if isinstance(prepared.network, ClassicSystem):
                progress = fit_system(config, prepared.network, prepared.train, dev)
                after_epoch(progress.records[0])
            else:
                device = pick_device(config.train.device)
                network = prepared.network.to(device)
                if (encoder := encoder_of(network)) is not None:
                    encoder.encode_all(
                        [*prepared.train.documents, *dev.documents], device, on_encode
                    )
                progress = run_epochs(
                    prepared, network, dev, last, start, on_step, after_epoch, stop
                )
        return finish(prepared, progress, dev, folder, start)


def run_epochs(
    prepared: Prepared,
    network: Network,
    dev: DevSet,
    last: LastEpoch,
    start: dict[str, Any],
    on_step: OnStep | None,
    on_epoch: OnEpoch,
    stop: Stop | None = None,
) -> Progress:
    """Train a network epoch by epoch, with checkpoints from time to time."""
    config, device = prepared.config, next(network.parameters()).device
    goal, begun = config.train.start_length, last.path.exists()
    scored = [dev.dev.documents, dev.joined.documents if dev.joined else []]
    scale = bool(goal) and not begun
    compile_ahead(network, config, prepared.train, scored, device, scale=scale)
    encoder = encoder_of(network) if config.train.contrastive_epochs else None
    if isinstance(encoder, LearningEncoder) and not begun:
        with deterministic():
            warm_up(config, network, encoder, prepared.train, device, on_step)
    if goal and isinstance(network, CapsuleNetwork) and not begun:
        documents = prepared.train.documents
        scale_lengths(network, documents, goal, seed=config.train.seed)
    trainer = Trainer(
        config, network, prepared.train, dev, device, n_pieces=prepared.n_pieces
    )
    if begun:
        trainer.progress = read_checkpoint(
            last.path, network, trainer.optimiser, last.run, trainer.average
        )

    def save() -> None:
        write_checkpoint(last.path, trainer.tensors(), trainer.progress, last.run)

    saved = time.monotonic()
    with deterministic():
        for record in trainer.epochs(on_step):
            # First, so that this copy is never older than the checkpoint.
            last.keep(trainer.tensors(), trainer.progress)
            if time.monotonic() - saved >= config.train.checkpoint_seconds:
                save()
                saved = time.monotonic()
            with trainer.averaged():
                on_epoch(record)
            if stop is not None and stop():
                break
    if start.get("keep_checkpoint"):
        save()
    return trainer.progress


def finish(
    prepared: Prepared,
    progress: Progress,
    dev: DevSet,
    folder: Path,
    start: dict[str, Any],
) -> TextClassifier:
    """Take the best epoch's weights, calibrate thresholds, write the model folder."""
    (records, best), network = progress, prepared.network
    assert best is not None  # there is at least one epoch
    if isinstance(network, ClassicSystem):
        start = {**start, "parameters": network.n_parameters()}
    else:
        network.load_state_dict(best.weights, strict=False)  # without frozen ones
        if isinstance(encoder := encoder_of(network), LearningEncoder):
            # Before the thresholds, which must suit the encoder that is saved.
            network.embedding = encoder.frozen()
            network.capturable = network.embedding.capturable
        network.eval()
    views = words = None
    if isinstance(network, Network):
        views = share_views(network, dev)
        words = add_word_scores(prepared.config, network, prepared.train, dev)
    calibration = dev.calibrate(network)
    common = (calibration["threshold"],) * len(prepared.corpus.labels)
    classifier = classifier_of(prepared, calibration.get("thresholds", common))
    if prepared.config.train.refuse:
        parts = (prepared.config, prepared.tokenizer, prepared.corpus)
        classifier.rule = outside_rule(*parts)
    warnings = list(start.get("warnings", ()))
    doubts = [learnt_nothing(records[best.epoch], dev)]
    if classifier.rule is not None:
        doubts.append(repeats_itself(classifier.rule, prepared.corpus))
    for message in filter(None, doubts):
        warnings.append(message)
        warn(message)
    reasons, keeps = None, start.pop("keep_model", True)
    if start.pop("test_reasons", True):
        texts = [each.text for each in prepared.corpus.dev]
        reasons = measure_reasons(classifier, texts)
    classifier.record = {
        **start,
        "finished": True,
        **({} if reasons is None else {"reasons": reasons}),
        "best_epoch": best.epoch + 1,
        **({} if views is None else {"views": views}),
        **({} if words is None else {"word_scores": words}),
        "calibration": calibration,
        "outside": None if classifier.rule is None else classifier.rule.to_dict(),
        "warnings": warnings,
        "epochs": records,
        "seconds": round(
            sum(r["train_seconds"] + r["dev_seconds"] for r in records), 3
        ),
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **environment(network),
    }
    if keeps:
        classifier.save(folder)
    tidy(folder, keep_checkpoint=bool(start.get("keep_checkpoint")))
    return classifier


def run_id(options: str, prepared: Prepared) -> str:
    """Return what identifies a run: the checksum of its options and its data."""
    return hashlib.sha256(
        f"{options} {prepared.facts['fingerprint']}".encode()
    ).hexdigest()


def learnt_nothing(record: dict[str, Any], dev: DevSet) -> str | None:
    """Return a warning if the kept epoch is no better than the commonest label."""
    accuracy, n_texts = record["dev_accuracy"], len(dev.dev.targets)
    # With few texts, the deviation of a share means little.
    limit = dev.majority_limit if n_texts >= 30 else dev.majority_share
    if accuracy > limit:
        return None
    return (
        f"the network may have learnt nothing: its dev accuracy, {100 * accuracy:.1f}% "
        f"of {n_texts:,} texts, is no better than always giving the commonest label, "
        f"which may reach {100 * min(limit, 1):.1f}%. Try another --learning-rate, "
        "more --epochs, or more texts."
    )


def classifier_of(
    prepared: Prepared, thresholds: Sequence[float] | None = None
) -> TextClassifier:
    """Return the run's network with its vocabulary, its labels and their thresholds."""
    names = prepared.corpus.labels
    thresholds = thresholds or (UNCALIBRATED,) * len(names)
    labels = Labels(names, tuple(thresholds), prepared.config.train.task)
    return TextClassifier(prepared.config, prepared.tokenizer, labels, prepared.network)


def environment(network: System) -> dict[str, Any]:
    """Return the device, threads and versions that a run had."""
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


@contextmanager
def deterministic() -> Iterator[None]:
    """Let torch take deterministic algorithms, and warn where it has none."""
    before = torch.get_deterministic_debug_mode()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    # As `use_deterministic_algorithms`, which imports torch's compiler besides.
    torch.set_deterministic_debug_mode("warn")
    # Nothing here reads memory that it has not written: one launch less per tensor.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
        memory.fill_uninitialized_memory = filled


def summary_writer() -> Any:
    """Return TensorBoard's writer, which an extra installs."""
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
