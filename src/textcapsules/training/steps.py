"""One pass over the training texts: batch by batch, or as captured CUDA graphs.

`EagerSteps` runs anywhere. `GraphSteps` captures a whole training step (gather the
batch, forward, loss, backward, clipping, Adam) once per padded length and replays it,
so that Python launches nothing and the GPU never waits. Both take the same batches in
the same order and agree to rounding.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from textcapsules.config import RunConfig
from textcapsules.model.layers import set_precision
from textcapsules.model.network import Network
from textcapsules.text.batch import make_batch
from textcapsules.training.losses import output_loss
from textcapsules.training.optimise import make_optimiser

__all__ = ["EagerSteps", "GraphSteps", "make_steps"]

log = logging.getLogger(__name__)

# cuBLAS takes 32 MiB per stream unless this is set before its first product. With
# 128 KiB it also promises the same bits every time. cuBLASLt shares that memory, and
# PyTorch warns if it asks for more.
if os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8") == ":16:8":
    os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "128")


class EagerSteps:
    """Training steps as Python runs them, one batch after the other."""

    def __init__(
        self, config: RunConfig, network: Network, device: torch.device
    ) -> None:
        self.config, self.network, self.device = config, network, device
        use_precision(network, config.train.precision, device)
        self.optimiser = make_optimiser(network, config, device)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of every group to its share of `rate`."""
        for group in self.optimiser.param_groups:
            group["lr"].fill_(rate * group["share"])

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
        loss = output_loss(config.loss, output, targets, epoch)
        loss.backward()
        if config.train.clip_norm:
            nn.utils.clip_grad_norm_(self.network.parameters(), config.train.clip_norm)
        self.optimiser.step()
        self.network.constrain()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()


class GraphSteps(EagerSteps):
    """The same steps, captured once per padded length and replayed."""

    def __init__(
        self, config: RunConfig, network: Network, device: torch.device
    ) -> None:
        super().__init__(config, network, device)
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.warm: set[int] = set()
        self.pool: Any = None  # memory that the graphs share
        self.refused = False  # a capture has failed
        self.rows = torch.zeros(
            config.train.batch_size, dtype=torch.int64, device=device
        )
        self.texts: tuple[Any, Any] = (None, None)  # on the device
        self.shapes: list[torch.Size] = []  # of the tensors on the device
        self.margin = 0
        self.length_step, self.most_tokens = network.length_step, network.most_tokens

    def run(
        self,
        documents: Sequence[NDArray],
        targets: NDArray,
        batches: Sequence[NDArray],
        epoch: int,
    ) -> Iterator[Tensor]:
        """Yield the loss of every batch; all texts stay on the device."""
        self.network.train()
        self.load(documents, targets, epoch)
        order = torch.from_numpy(np.concatenate(batches)).to(self.device)
        lengths = np.array([len(ids) for ids in documents])
        start = 0
        for rows in batches:
            chosen = order[start : start + len(rows)]
            start += len(rows)
            longest = padded_length(
                int(lengths[rows].max()), self.ids.shape[1], self.length_step
            )
            yield self.step(chosen, longest, epoch) * len(rows)

    def load(self, documents: Sequence[NDArray], targets: NDArray, epoch: int) -> None:
        """Put all texts on the device, unless they are there already."""
        if self.texts[0] is not documents or self.texts[1] is not targets:
            self.place(documents, targets)
            self.texts = documents, targets
        # The spread loss's margin is a number of the epoch, frozen into a capture.
        margin = epoch if self.config.loss.loss == "spread" else 0
        if margin != self.margin:
            self.margin = margin
            self.forget()

    def place(self, documents: Sequence[NDArray], targets: NDArray) -> None:
        """Copy texts to the device, in place if their shapes have not changed."""
        longest = padded_length(
            max(map(len, documents)), self.most_tokens, self.length_step
        )
        shape = (len(documents), longest, *documents[0].shape[1:])
        ids = np.zeros(shape, dtype=np.int64)  # (N, T) or (N, T, F)
        for row, words in enumerate(documents):
            ids[row, : len(words)] = words
        n_words = np.array([len(words) for words in documents], dtype=np.int64)
        new = [torch.from_numpy(part) for part in (ids, n_words, targets)]
        shapes = [part.shape for part in new]
        if shapes == self.shapes:
            for old, part in zip(
                (self.ids, self.n_words, self.targets), new, strict=True
            ):
                old.copy_(part)
            return
        self.shapes = shapes
        self.ids, self.n_words, self.targets = (part.to(self.device) for part in new)
        self.places = torch.arange(longest, device=self.device)
        self.forget()

    def forget(self) -> None:
        """Drop the graphs: what they have recorded has changed."""
        self.graphs.clear()
        self.pool = None  # a pool goes with the last of its graphs

    def step(self, chosen: Tensor, longest: int, epoch: int) -> Tensor:
        """Replay the step for this length; the first one of a length is not captured.

        It is a real step too: kernels compile and libraries set themselves up in it,
        which must not happen during a capture.
        """
        is_full = len(chosen) == len(self.rows)
        if self.refused or not is_full or longest not in self.warm:
            self.warm |= {longest} if is_full else set()
            return self.gathered(chosen, longest, epoch)
        self.rows.copy_(chosen)
        if longest not in self.graphs:
            try:
                self.graphs[longest] = self.capture(longest, epoch)
            except RuntimeError as error:
                self.refuse(error)
                return self.gathered(chosen, longest, epoch)
        graph, loss = self.graphs[longest]
        graph.replay()
        return loss.clone()

    def capture(self, longest: int, epoch: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Record one step; nothing is computed yet."""
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            loss = self.gathered(self.rows, longest, epoch)
        return graph, loss

    def refuse(self, error: RuntimeError) -> None:
        """Go on without graphs: some operation of the network cannot be captured."""
        reason = str(error).strip().splitlines()[0]
        log.warning("steps run uncaptured, which is slower: %s", reason)
        self.refused = True
        self.optimiser.zero_grad(set_to_none=True)  # what the failed capture left
        if self.device.type == "cuda":  # the generator still believes it is captured
            seed = torch.cuda.initial_seed()
            fresh = torch.Generator(self.device).manual_seed(seed)
            generator = torch.cuda.default_generators[self.device.index or 0]
            generator.graphsafe_set_state(fresh.graphsafe_get_state())

    def gathered(self, rows: Tensor, longest: int, epoch: int) -> Tensor:
        """Update the weights on a batch of the texts on the device."""
        mask = self.places[:longest] < self.n_words[rows].unsqueeze(1)  # (B, T)
        ids = self.ids[:, :longest][rows]  # (B, T)
        return self.update(ids, mask, self.targets[rows], epoch)


def use_precision(network: nn.Module, precision: str, device: torch.device) -> None:
    """Set the precision of products: in the network's kernels and in GPU libraries."""
    set_precision(network, precision)
    if device.type == "cuda":
        fast = precision in ("tf32", "bf16")
        torch.backends.cuda.matmul.allow_tf32 = fast
        torch.backends.cudnn.allow_tf32 = fast


def padded_length(
    longest: int, limit: int | None, step: int = Network.length_step
) -> int:
    """Round a length up to a multiple of `step`, but not past `limit`.

    >>> padded_length(17, None), padded_length(0, None), padded_length(17, 20)
    (24, 8, 20)
    >>> padded_length(17, None, step=100)
    100
    """
    padded = max(-(-longest // step), 1) * step
    return padded if limit is None else min(padded, limit)


def make_steps(config: RunConfig, network: Network, device: torch.device) -> EagerSteps:
    """Return captured steps on a GPU if the network allows it, else eager ones."""
    if device.type == "cuda" and network.capturable:
        return GraphSteps(config, network, device)
    return EagerSteps(config, network, device)
