"""One pass over the training texts: batch by batch, or as captured CUDA graphs.

`EagerSteps` runs anywhere. `GraphSteps` captures a whole training step (gather the
batch, forward, loss, backward, clipping, Adam) once for each padded length and replays
it, so that a step costs the GPU's work alone: no launches from Python, no waiting.
Both take the same batches in the same order and agree to rounding.
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
from textcapsules.text.batch import make_batch
from textcapsules.training.losses import output_loss

__all__ = ["EagerSteps", "GraphSteps", "make_steps"]

log = logging.getLogger(__name__)

# Lengths are rounded up to this, or to what a network says of itself (`length_step`),
# so that few graphs serve all batches.
LENGTH_STEP = 8

# cuBLAS takes 32 MiB for each stream unless told otherwise before its first product;
# with this much, 128 KiB, it also promises the same bits every time. cuBLASLt shares
# it, and PyTorch warns where it asks for more.
if os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8") == ":16:8":
    os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "128")


class EagerSteps:
    """Steps as Python runs them."""

    def __init__(
        self, config: RunConfig, network: nn.Module, device: torch.device
    ) -> None:
        self.config, self.network, self.device = config, network, device
        use_precision(network, config.train.precision, device)
        kind = torch.optim.AdamW if config.train.weight_decay else torch.optim.Adam
        self.optimiser = kind(
            [
                # A tensor, so that a captured step reads the rate set last.
                {**group, "lr": torch.tensor(config.train.learning_rate, device=device)}
                for group in parameter_groups(network, config)
            ],
            fused=True,
            capturable=device.type == "cuda",
        )

    def set_rate(self, rate: float) -> None:
        """Set the learning rate; a group has its share of it."""
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
        constrain = getattr(self.network, "constrain", None)
        if constrain is not None:
            constrain()
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
        self.pool: Any = None  # of memory, shared by the graphs
        self.refused = False  # a capture has failed
        self.rows = torch.zeros(
            config.train.batch_size, dtype=torch.int64, device=device
        )
        self.texts: tuple[Any, Any] = (None, None)  # on the device
        self.shapes: list[torch.Size] = []  # of what is there
        self.margin = 0
        self.length_step: int = getattr(network, "length_step", LENGTH_STEP)

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
            longest = padded_length(
                int(lengths[rows].max()), self.ids.shape[1], self.length_step
            )
            yield self.step(chosen, longest, epoch) * len(rows)

    def load(self, documents: Sequence[NDArray], targets: NDArray, epoch: int) -> None:
        """Put all texts on the device, unless they are the ones already there."""
        if self.texts[0] is not documents or self.texts[1] is not targets:
            self.place(documents, targets)
            self.texts = documents, targets
        # The spread loss's margin is a number of the epoch, frozen into a capture.
        margin = epoch if self.config.loss.loss == "spread" else 0
        if margin != self.margin:
            self.margin = margin
            self.forget()

    def place(self, documents: Sequence[NDArray], targets: NDArray) -> None:
        """Copy texts to the device, in place where the graphs know their place."""
        longest = padded_length(max(map(len, documents)), None, self.length_step)
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
        self.forget()

    def forget(self) -> None:
        """Drop the graphs: what they have frozen is no longer so."""
        self.graphs.clear()
        self.pool = None  # a pool goes with the last of its graphs

    def step(self, chosen: Tensor, longest: int, epoch: int) -> Tensor:
        """Replay the step for this length; the first of a kind runs as it is.

        That first run is a real step too: it lets kernels compile and libraries settle,
        which a capture must not see.
        """
        whole = len(chosen) == len(self.rows)
        if self.refused or not whole or longest not in self.warm:
            self.warm |= {longest} if whole else set()
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
        """Go on without graphs: some operation of the network has no place in one."""
        reason = str(error).strip().splitlines()[0]
        log.warning("steps run uncaptured, which is slower: %s", reason)
        self.refused = True
        self.optimiser.zero_grad(set_to_none=True)  # what the failed capture left
        if self.device.type == "cuda":  # and a generator that takes itself for captured
            seed = torch.cuda.initial_seed()
            fresh = torch.Generator(self.device).manual_seed(seed)
            generator = torch.cuda.default_generators[self.device.index or 0]
            generator.graphsafe_set_state(fresh.graphsafe_get_state())

    def gathered(self, rows: Tensor, longest: int, epoch: int) -> Tensor:
        """Take a batch out of the texts on the device, and learn from it."""
        places = torch.arange(longest, device=self.device)
        mask = places < self.n_words[rows].unsqueeze(1)  # (B, T)
        ids = self.ids[:, :longest][rows]  # (B, T)
        return self.update(ids, mask, self.targets[rows], epoch)


def parameter_groups(network: nn.Module, config: RunConfig) -> list[dict[str, Any]]:
    """Return what Adam learns, in groups that share their rate and their decay.

    Word vectors from a file are good already, and may have a rate of their own; words
    drawn at random have all to learn, and take the same rate as the rest. Only the
    weights of products decay: a bias or a gain is no sign of too close a fit, and the
    vector of a rare word would fade between the texts that have it.
    """
    share = 1.0 if config.text.vectors is None else config.train.vector_rate
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Embedding)]
    words = {id(layer.weight) for layer in layers}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        is_word = id(parameter) in words
        # A capsule's bias has as many dimensions as it has addresses.
        spared = is_word or parameter.ndim < 2 or "bias" in name.rpartition(".")[2]
        key = share if is_word else 1.0, 0.0 if spared else config.train.weight_decay
        groups.setdefault(key, []).append(parameter)
    # In an order that is the options' own: moments are stored by it.
    return [
        {"params": groups[key], "share": key[0], "weight_decay": key[1]}
        for key in sorted(groups, key=lambda key: (key[0] != 1, -key[1]))
    ]


def use_precision(network: nn.Module, precision: str, device: torch.device) -> None:
    """Form products as asked: the network's kernels, and the libraries on a GPU."""
    set_precision(network, precision)
    if device.type == "cuda":
        fast = precision in ("tf32", "bf16")
        torch.backends.cuda.matmul.allow_tf32 = fast
        torch.backends.cudnn.allow_tf32 = fast


def padded_length(longest: int, limit: int | None, step: int = LENGTH_STEP) -> int:
    """Round a length up, but not past the longest text's.

    >>> padded_length(17, None), padded_length(0, None), padded_length(17, 20)
    (24, 8, 20)
    >>> padded_length(17, None, step=100)
    100
    """
    padded = max(-(-longest // step), 1) * step
    return padded if limit is None else min(padded, limit)


def make_steps(
    config: RunConfig, network: nn.Module, device: torch.device
) -> EagerSteps:
    """Return captured steps on a GPU if the network allows it, plain ones elsewhere."""
    if device.type == "cuda" and getattr(network, "capturable", True):
        return GraphSteps(config, network, device)
    return EagerSteps(config, network, device)
