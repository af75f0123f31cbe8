"""One pass over the training texts: batch by batch, or as captured CUDA graphs.

`EagerSteps` runs anywhere. `GraphSteps` captures a whole training step (gather the
batch, forward, loss, backward, clipping, Adam) once for each padded length and replays
it, so that a step costs the GPU's work alone: no launches from Python, no waiting.
Both take the same batches in the same order and agree to rounding.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn

from textcapsules.config import RunConfig
from textcapsules.losses import network_loss
from textcapsules.text.batch import make_batch

__all__ = ["EagerSteps", "GraphSteps", "make_steps"]

# Lengths are rounded up to this, so that few graphs serve all batches.
LENGTH_STEP = 8


class EagerSteps:
    """Steps as Python runs them."""

    def __init__(
        self, config: RunConfig, network: nn.Module, device: torch.device
    ) -> None:
        self.config, self.device = config, device
        # Accelerate settles on one device a process; ours may change between runs.
        self.accelerator = Accelerator()
        self.network: nn.Module = self.accelerator.prepare_model(
            network, device_placement=False
        )
        parameters = [p for p in network.parameters() if p.requires_grad]
        adam = torch.optim.Adam(
            parameters,
            # A tensor, so that a captured step reads the rate of its epoch.
            torch.tensor(config.train.learning_rate, device=device),
            fused=True,
            capturable=device.type == "cuda",
        )
        self.optimiser: Any = self.accelerator.prepare_optimizer(
            adam, device_placement=False
        )

    def set_rate(self, rate: float) -> None:
        """Set the learning rate."""
        for group in self.optimiser.param_groups:
            group["lr"].fill_(rate)

    def run(
        self,
        documents: Sequence[NDArray],
        targets: NDArray,
        batches: Sequence[NDArray],
        epoch: int,
    ) -> Iterator[Tensor]:
        """Yield the loss of every batch, summed over its texts."""
        self.network.train()
        for rows in batches:
            batch = make_batch(documents, targets, rows).to(self.device)
            yield self.update(batch.ids, batch.mask, batch.targets, epoch) * len(rows)

    def update(self, ids: Tensor, mask: Tensor, targets: Tensor, epoch: int) -> Tensor:
        """Update the weights on one batch and return its mean loss."""
        config = self.config
        output = self.network(ids, mask)
        lengths = output.lengths(orphan=config.loss.orphan_in_loss)
        loss = network_loss(config.loss, lengths, targets, epoch)
        self.accelerator.backward(loss)
        if config.train.clip_norm:
            self.accelerator.clip_grad_norm_(
                self.network.parameters(), config.train.clip_norm
            )
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()


class GraphSteps(EagerSteps):
    """The same steps, captured once for each padded length and replayed."""

    def __init__(
        self, config: RunConfig, network: nn.Module, device: torch.device
    ) -> None:
        super().__init__(config, network, device)
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.warm: set[int] = set()
        self.pool = torch.cuda.graph_pool_handle()
        self.rows = torch.zeros(
            config.train.batch_size, dtype=torch.int64, device=device
        )
        self.key: tuple[Any, ...] = ()

    def run(
        self,
        documents: Sequence[NDArray],
        targets: NDArray,
        batches: Sequence[NDArray],
        epoch: int,
    ) -> Iterator[Tensor]:
        """Yield the loss of every batch; the texts wait on the device all the while."""
        self.network.train()
        self.load(documents, targets, epoch)
        order = torch.from_numpy(np.concatenate(batches)).to(self.device)
        lengths = np.array([len(ids) for ids in documents])
        start = 0
        for rows in batches:
            chosen = order[start : start + len(rows)]
            start += len(rows)
            longest = padded_length(int(lengths[rows].max()), self.ids.shape[1])
            yield self.step(chosen, longest, epoch) * len(rows)

    def load(self, documents: Sequence[NDArray], targets: NDArray, epoch: int) -> None:
        """Put all texts on the device, in place where the graphs know their place."""
        longest = padded_length(max(map(len, documents)), None)
        ids = np.zeros((len(documents), longest), dtype=np.int64)
        for row, words in enumerate(documents):
            ids[row, : len(words)] = words
        n_words = np.array([len(words) for words in documents], dtype=np.int64)
        new = [torch.from_numpy(part) for part in (ids, n_words, targets)]
        # The spread loss's margin is a number of the epoch, frozen into a capture.
        margin = epoch if self.config.loss.loss == "spread" else 0
        key = (*(part.shape for part in new), margin)
        if key == self.key:
            for old, part in zip(
                (self.ids, self.n_words, self.targets), new, strict=True
            ):
                old.copy_(part)
            return
        self.graphs.clear()
        self.key = key
        self.ids, self.n_words, self.targets = (part.to(self.device) for part in new)

    def step(self, chosen: Tensor, longest: int, epoch: int) -> Tensor:
        """Replay the step for this length; the first of a kind runs as it is.

        That first run is a real step too: it lets kernels compile and libraries settle,
        which a capture must not see.
        """
        if len(chosen) < len(self.rows) or longest not in self.warm:
            self.warm |= {longest} if len(chosen) == len(self.rows) else set()
            return self.gathered(chosen, longest, epoch)
        self.rows.copy_(chosen)
        if longest not in self.graphs:
            self.graphs[longest] = self.capture(longest, epoch)
        graph, loss = self.graphs[longest]
        graph.replay()
        return loss.clone()

    def capture(self, longest: int, epoch: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Record one step; nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            loss = self.gathered(self.rows, longest, epoch)
        return graph, loss

    def gathered(self, rows: Tensor, longest: int, epoch: int) -> Tensor:
        """Take a batch out of the texts on the device, and learn from it."""
        places = torch.arange(longest, device=self.device)
        mask = places < self.n_words[rows].unsqueeze(1)  # (B, T)
        ids = self.ids[:, :longest][rows]  # (B, T)
        return self.update(ids, mask, self.targets[rows], epoch)


def padded_length(longest: int, limit: int | None) -> int:
    """Round a length up, but not past the longest text's.

    >>> padded_length(17, None), padded_length(0, None), padded_length(17, 20)
    (24, 8, 20)
    """
    padded = max(-(-longest // LENGTH_STEP), 1) * LENGTH_STEP
    return padded if limit is None else min(padded, limit)


def make_steps(
    config: RunConfig, network: nn.Module, device: torch.device
) -> EagerSteps:
    """Return captured steps on a GPU, plain ones elsewhere."""
    if device.type == "cuda":
        return GraphSteps(config, network, device)
    return EagerSteps(config, network, device)
