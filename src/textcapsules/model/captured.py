"""Scoring in bulk on a GPU: one captured CUDA graph per shape of a batch.

All texts of a call are copied to the device at once, every batch is a replay, and the
host waits once, for the scores. The graphs read the network's weights where they are,
so they stay right while training changes these; where a weight has moved, or a layer is
to compute otherwise, they are dropped.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.network import Network
from textcapsules.model.routing import has_triton

__all__ = ["CapturedScores", "captured_scores", "cut_batches", "suits"]

log = logging.getLogger(__name__)

FEWEST_TEXTS = 256  # of a call: a capture costs as much as some plain batches
BATCH_TOKENS = 8192  # of a batch, padding included: they fill a large GPU
BATCH_TEXTS = 1024  # at most
TEXTS_STEP = 64  # batches are its multiples, or smaller powers of two
LENGTHS_PER_OCTAVE = 8  # of long texts: few graphs, little padding
WORDS_AT_ONCE = 1 << 21  # on the device, of all columns of the documents
TEXTS_AT_ONCE = 1 << 14  # so many texts' scores are on the device


class Cut(NamedTuple):
    """A batch of texts in the order of their lengths: its place, and its shape."""

    start: int
    stop: int
    texts: int  # rows of the captured batch, some of them spare
    tokens: int  # its padded length


def suits(network: Network, lengths: NDArray) -> bool:
    """Tell whether texts of these lengths are scored faster by graphs."""
    device = next(network.parameters()).device
    return (
        device.type == "cuda"
        and isinstance(network, CapsuleNetwork)
        and network.capturable
        and len(lengths) >= FEWEST_TEXTS
        and int(lengths.max()) <= WORDS_AT_ONCE
        and not torch.cuda.is_current_stream_capturing()
    )


def padded(length: int, step: int) -> int:
    """Round a length up to one of few: multiples of `step`, coarser for long texts.

    >>> [padded(n, 8) for n in (0, 8, 9, 130, 1000)]
    [8, 8, 16, 144, 1024]
    """
    coarse = (1 << max(length - 1, 0).bit_length()) // 2 // LENGTHS_PER_OCTAVE
    step *= max(1, -(-coarse // step))
    return max(-(-length // step), 1) * step


def cut_batches(lengths: NDArray, step: int, most: int | None = None) -> list[Cut]:
    """Cut texts of rising lengths into batches of few shapes, the longest first.

    A full batch has as many texts as its padded length says; only the last one, of the
    shortest texts, may have fewer. No text is padded past `most`.

    >>> cut_batches(np.array([3, 3, 5, 90]), 8)
    [Cut(start=0, stop=4, texts=64, tokens=96)]
    >>> [cut[1:] for cut in cut_batches(np.repeat([5, 250], 40), 8)]
    [(80, 32, 256), (48, 32, 256), (16, 64, 8)]
    """
    cuts, stop = [], len(lengths)
    while stop:
        tokens = padded(longest := int(lengths[stop - 1]), step)
        if most is not None:
            tokens = max(longest, min(tokens, most))
        fitting = min(BATCH_TEXTS, max(1, BATCH_TOKENS // tokens))
        if fitting < TEXTS_STEP:
            texts = 1 << (fitting.bit_length() - 1)
        else:
            texts = min(fitting, stop + TEXTS_STEP - 1) // TEXTS_STEP * TEXTS_STEP
        start = max(0, stop - texts)
        cuts.append(Cut(start, stop, texts, tokens))
        stop = start
    return cuts


def cuts_for(network: Network, lengths: NDArray) -> list[Cut]:
    """Cut texts of rising lengths into the batches that suit a network."""
    return cut_batches(lengths, network.length_step, network.most_tokens)


class CapturedScores:
    """Scores documents with one network, by graphs that it keeps."""

    def __init__(self) -> None:
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.warm: set[tuple[int, int]] = set()  # shapes scored without a graph
        self.tried: set[tuple[int, int]] = set()  # shapes whose kernels are compiled
        self.pool: Any = None  # memory that the graphs share
        self.seen: Any = None  # what the graphs have recorded: see `fingerprint`
        self.refused = False  # a capture has failed
        self.lock = Lock()  # the graphs read and write the same memory
        # From which the graphs read: words, and where each text starts and ends.
        self.words = self.places = torch.empty(0)

    def scores(
        self, network: Network, documents: Sequence[NDArray], lengths: NDArray
    ) -> NDArray[np.float32]:
        """Return every class's score (N, J); the network is in evaluation.

        An empty document has the scores that the network gives it.
        """
        order = np.argsort(lengths, kind="stable")
        scores = np.empty((len(documents), network.n_classes), dtype=np.float32)
        # No inference mode: it would mark memory that all captures share, such as the
        # state of the random generator, as not to be changed by a later training.
        device = next(network.parameters()).device
        with self.lock, current(device), torch.inference_mode(False), torch.no_grad():
            self.look_at(network, documents[0].shape[1:])
            self.compile_kernels(network, lengths[order])
            for part in parts_of(order, lengths):
                chosen = [documents[row] for row in part]
                scores[part] = self.score_part(network, chosen, lengths[part])
        return scores

    def compile_kernels(self, network: Network, lengths: NDArray) -> None:
        """Compile what texts of rising lengths need, side by side if it is new."""
        if not self.words.is_cuda or not has_triton():
            return
        try:
            from textcapsules.model.kernels.gpu.compile import compile_planned, planned

            with planned() as launches:
                self.dry_run(network, lengths)
            compile_planned(launches)
        except Exception as error:  # then they are compiled where they are launched
            log.debug("compiling ahead: %s", error)

    def dry_run(self, network: Network, lengths: NDArray) -> None:
        """Go once through every new shape of batches of texts of rising lengths."""
        for *_, texts, tokens in cuts_for(network, lengths):
            if (texts, tokens) not in self.tried:
                self.tried.add((texts, tokens))
                self.gathered(network, texts, tokens)

    def look_at(self, network: Network, columns: tuple[int, ...]) -> None:
        """Drop the graphs if the network or the texts are not as they recorded them."""
        if (seen := (fingerprint(network), columns)) == self.seen:
            return
        self.graphs.clear()
        self.warm.clear()
        self.tried.clear()
        self.pool, self.seen = None, seen
        device = next(network.parameters()).device
        with torch.inference_mode(False):
            shape = WORDS_AT_ONCE, *columns
            self.words = torch.zeros(shape, device=device, dtype=torch.int32)
            self.places = torch.zeros(2, BATCH_TEXTS, device=device, dtype=torch.int64)

    def score_part(
        self, network: Network, documents: Sequence[NDArray], lengths: NDArray
    ) -> NDArray[np.float32]:
        """Return the scores of documents in the order of their lengths."""
        device = self.words.device
        words = np.concatenate(documents)
        self.words[: len(words)].copy_(torch.from_numpy(words))
        ends = np.cumsum(lengths)
        places = torch.from_numpy(np.stack([ends - lengths, lengths])).to(device)
        found = torch.empty(len(documents), network.n_classes, device=device)
        for start, stop, texts, tokens in cuts_for(network, lengths):
            self.places[:, : stop - start].copy_(places[:, start:stop])
            if texts > stop - start:  # spare rows have no words
                self.places[1, stop - start : texts].zero_()
            batch = self.batch(network, texts, tokens)
            found[start:stop].copy_(batch[: stop - start])
        return found.cpu().numpy()  # the only wait

    def batch(self, network: Network, texts: int, tokens: int) -> Tensor:
        """Return the scores of the batch whose places are set.

        The first batch of a shape is not captured: kernels compile and libraries set
        themselves up in it, which must not happen during a capture.
        """
        shape = texts, tokens
        if shape not in self.graphs:
            if self.refused or shape not in self.warm:
                self.warm.add(shape)
                return self.gathered(network, texts, tokens)
            try:
                self.graphs[shape] = self.capture(network, texts, tokens)
            except RuntimeError as error:
                self.refuse(error)
                return self.gathered(network, texts, tokens)
        graph, scores = self.graphs[shape]
        graph.replay()
        return scores

    def capture(
        self, network: Network, texts: int, tokens: int
    ) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Record the scoring of a batch; nothing is computed yet."""
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            scores = self.gathered(network, texts, tokens)
        return graph, scores

    def refuse(self, error: RuntimeError) -> None:
        """Go on without graphs: some operation of the network cannot be captured."""
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        log.warning("scoring runs uncaptured, which is slower: %s", reason)
        self.refused = True
        self.graphs.clear()
        self.pool = None
        if self.words.is_cuda:  # the generator still believes it is captured
            seed = torch.cuda.initial_seed()
            fresh = torch.Generator(self.words.device).manual_seed(seed)
            generator = torch.cuda.default_generators[self.words.device.index or 0]
            generator.graphsafe_set_state(fresh.graphsafe_get_state())

    def gathered(self, network: Network, texts: int, tokens: int) -> Tensor:
        """Score a batch of the words on the device."""
        starts, lengths = self.places[:, :texts, None]  # (B, 1)
        offsets = torch.arange(tokens, device=self.words.device)
        mask = offsets < lengths  # (B, T)
        ids = self.words[(starts + offsets) * mask]  # (B, T) or (B, T, F)
        inside = mask.view(*mask.shape, *[1] * (ids.ndim - 2))
        return network.score(ids.long() * inside, mask).float()


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which captures are made on a device, where it is a GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def parts_of(order: NDArray, lengths: NDArray) -> Iterator[NDArray]:
    """Yield rows in order, as many at a time as fit into the memory on the device."""
    ends = np.cumsum(lengths[order])
    start, before = 0, 0
    while start < len(order):
        stop = int(np.searchsorted(ends, before + WORDS_AT_ONCE, side="right"))
        stop = max(min(stop, start + TEXTS_AT_ONCE), start + 1)
        yield order[start:stop]
        start, before = stop, int(ends[stop - 1])


def fingerprint(network: Network) -> tuple[Any, ...]:
    """Return what a graph records of a network beside its operations."""
    tensors = (*network.parameters(), *network.buffers())
    places = [(t.data_ptr(), t.shape) for t in tensors]
    weights = None if network.words is None else network.words.weights
    ways = [
        (getattr(layer, "backend", ""), layer.precision, getattr(layer, "options", ()))
        for layer in network.modules()
        if hasattr(layer, "precision")
    ]
    products = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return tuple(places), weights, tuple(ways), products


_kept: "WeakKeyDictionary[nn.Module, CapturedScores]" = WeakKeyDictionary()


def captured_scores(network: Network) -> CapturedScores:
    """Return the graphs of a network, kept as long as the network is."""
    return _kept.setdefault(network, CapturedScores())
