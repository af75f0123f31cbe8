"""The training loop: yields one record per epoch, prints nothing.

Everything random in an epoch is drawn from (seed, epoch), so that an epoch is a
function of the weights and moments that it starts from. A system that needs no gradient
is fitted in one pass, which is recorded as one epoch (`fit_system`).
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from textcapsules.base.errors import TextCapsulesError
from textcapsules.config import RunConfig
from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.builder import gives_several
from textcapsules.model.network import Network
from textcapsules.text.batch import epoch_batches
from textcapsules.training.checkpoint import Best, Progress, tensors_of
from textcapsules.training.join import with_joined
from textcapsules.training.metrics import log_loss
from textcapsules.training.optimise import (
    AveragedWeights,
    changes_by_step,
    rate_at,
)
from textcapsules.training.prepare import Encoded
from textcapsules.training.selection import DevSet
from textcapsules.training.steps import make_steps

__all__ = ["Step", "Trainer", "fit_system"]


class Step(NamedTuple):
    """What a progress bar shows after a batch."""

    epoch: int
    step: int
    n_epochs: int
    n_steps: int
    loss: float
    stage: str = "epoch"  # or what comes before the epochs, in passes of its own


class Trainer:
    """A network in training: its optimiser, its progress, and the epochs to come."""

    def __init__(
        self,
        config: RunConfig,
        network: Network,
        train: Encoded,
        dev: DevSet,
        device: torch.device,
        *,
        n_pieces: int | None = None,
    ) -> None:
        self.config, self.train, self.dev, self.device = config, train, dev, device
        self.n_pieces = n_pieces  # see `join.join_documents`
        self.steps = make_steps(config, network, device)
        self.network, self.optimiser = self.steps.network, self.steps.optimiser
        decay = config.train.average_weights
        self.average = AveragedWeights(self.network, decay) if decay else None
        self.progress = Progress([], None)

    @property
    def n_epochs(self) -> int:
        """Return the maximum number of passes over the texts."""
        n_epochs = self.config.train.epochs
        assert n_epochs is not None  # `resolve` has settled it
        return n_epochs

    def epochs(
        self, on_step: Callable[[Step], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Run the epochs still to come and yield the record of each."""
        for epoch in range(len(self.progress.records), self.n_epochs):
            if self.out_of_patience():
                return
            yield self.run_epoch(epoch, on_step)

    def out_of_patience(self) -> bool:
        """Tell whether the dev score has not risen for `patience` epochs.

        Epochs do not count until the network has begun to learn: deep ones may need
        several epochs before they do.
        """
        patience, records = self.config.train.patience, self.progress.records
        if not patience or not records:
            return False
        if max(record["dev_accuracy"] for record in records) <= self.dev.majority_limit:
            return False
        scores = [record["dev_score"] for record in records]
        return len(scores) - 1 - scores.index(max(scores)) >= patience

    def run_epoch(
        self, epoch: int, on_step: Callable[[Step], None] | None
    ) -> dict[str, Any]:
        """Train for one epoch, judge it on dev, and keep its weights if they are best.

        The record's `learning_rate` is that of the epoch's last step.
        """
        started = time.perf_counter()
        seed = self.config.train.seed
        # One integer made of two, so that every (seed, epoch) has its own draws.
        torch.manual_seed(
            int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
        )
        loss, rate = self.train_once(epoch, on_step)
        trained = time.perf_counter()
        with self.averaged():
            record = {
                "epoch": epoch + 1,
                "loss": loss,
                **self.dev.judge(self.network),
                "learning_rate": rate,
                "train_seconds": round(trained - started, 3),
                "dev_seconds": round(time.perf_counter() - trained, 3),
            }
            best = self.best(record)
        self.progress = Progress([*self.progress.records, record], best)
        return record

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the network has the weights that are judged."""
        return nullcontext() if self.average is None else self.average.in_place()

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint needs, not copied."""
        return tensors_of(self.network, self.optimiser, self.average)

    def train_once(
        self, epoch: int, on_step: Callable[[Step], None] | None
    ) -> tuple[float, float]:
        """Train on every text once; return the mean loss per text and the last rate."""
        documents, targets = with_joined(
            self.config, self.train, epoch, n_pieces=self.n_pieces
        )
        # A network that wants batches of mixed lengths gets them as if all were equal.
        mixed = self.network.mixed_lengths
        batches = epoch_batches(
            [0 if mixed else len(ids) for ids in documents],
            self.config.train.batch_size,
            seed=self.config.train.seed,
            epoch=epoch,
        )
        total = torch.zeros((), device=self.device)
        losses = self.steps.run(documents, targets, batches, epoch)
        train, n_steps, rate = self.config.train, len(batches), 0.0
        for step, rows in enumerate(batches):
            if step == 0 or changes_by_step(train):
                rate = rate_at(train, epoch, step, n_steps)
                self.steps.set_rate(rate)
            loss = next(losses)  # makes the step
            if self.average is not None:
                self.average.update(epoch * n_steps + step)
            total += loss
            if on_step is not None:
                mean = float(loss) / len(rows)
                on_step(Step(epoch, step, self.n_epochs, n_steps, mean))
        mean = float(total) / len(documents)
        if not math.isfinite(mean):
            learns = train.encoder_training != "frozen"
            rates = "--learning-rate, --encoder-rate" if learns else "--learning-rate"
            raise TextCapsulesError(
                f"loss must stay finite; got {mean} in epoch {epoch + 1}. "
                f"Lower {rates} or set --clip-norm."
            )
        return mean, rate

    def best(self, record: dict[str, Any]) -> Best:
        """Return the epoch to keep: this one, or the best before it.

        Of epochs with equal dev scores it is the one with the lowest loss on dev, where
        that is known, else the first: few dev texts are all right soon, when a network
        has hardly learnt anything.
        """
        score, before = record["dev_score"], self.progress.best
        if before is not None and self.config.train.select != "last":
            earlier = self.progress.records[before.epoch]
            if ranked(record) <= ranked(earlier):
                return before
        frozen = {
            name
            for name, parameter in self.network.named_parameters()
            if not parameter.requires_grad
        }
        weights = {
            name: tensor.detach().to("cpu", copy=True)
            for name, tensor in self.network.state_dict().items()
            if name not in frozen
        }
        return Best(record["epoch"] - 1, score, weights)


def ranked(record: dict[str, Any]) -> tuple[float, float]:
    """Return what epochs are ordered by; earlier versions kept no loss on dev."""
    return record["dev_score"], -record.get("dev_loss", 0.0)


def fit_system(
    config: RunConfig, system: ClassicSystem, train: Encoded, dev: DevSet
) -> Progress:
    """Fit on the training texts (with joined ones if asked for) and judge on dev."""
    started = time.perf_counter()
    documents, targets = with_joined(config, train, 0)
    system.fit(documents, targets)
    loss = log_loss(system.scores(documents), targets, several=gives_several(config))
    fitted = time.perf_counter()
    record: dict[str, Any] = {
        "epoch": 1,
        "loss": loss,
        **dev.judge(system),
        "train_seconds": round(fitted - started, 3),
        "dev_seconds": round(time.perf_counter() - fitted, 3),
    }
    return Progress([record], Best(0, record["dev_score"], {}))
