"""Capsule-A and Capsule-B: n-gram networks over one embedding, their outputs averaged.

Capsule-A is the case of a single n-gram size. A text too short for a network's windows
(fewer than K1 + K2 - 1 tokens) counts as that long, the missing words being zero
vectors, so its scores depend only on the text; an empty text has no capsule that votes
and scores zero for every class. With `edges`, n-grams also reach over both ends of a
text, so that its first and last words stand at every place of some n-gram.

Capsules at every position tell how much of a text speaks for a class: a sentence of a
long one is a small share. Networks of peaks read the strongest value of every n-gram
feature instead, wherever it stands: the text around a phrase does not dilute it.

On an encoder there may be two views of a text: n-grams of its states, which know what
words mean where they stand, and n-grams of vectors of its pieces, which know which
words they are. The output is then a weighted average, whose shares are chosen on dev.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.functional import pose_length
from textcapsules.model.layers import (
    AttentionLayer,
    CapsuleDropout,
    CapsuleLayer,
    ConvCapsules,
    JointNgrams,
    NgramConv,
    PrimaryCapsules,
    RoutedClasses,
    ngram_capsules,
)
from textcapsules.model.network import Network
from textcapsules.model.routing import Routed
from textcapsules.text.encoder import EncoderEmbedding

__all__ = [
    "BranchRouting",
    "CapsuleNetwork",
    "CapsuleOutput",
    "NgramBranch",
    "Peaks",
    "lengthen",
    "widen",
]


class Peaks(NamedTuple):
    """Where the n-gram features of texts are strongest."""

    values: Tensor  # (B, F)
    places: Tensor  # (B, F), from 0 to P - 1
    n_positions: int  # P


class BranchRouting(NamedTuple):
    """The routing of one n-gram network, for explanations."""

    ngram_size: int
    mask: Tensor  # (B, P), which n-grams are the text's; (B, 1) of peaks
    capsules: Tensor  # (B, P, C, D), the primary ones; (B, 1, C, D) of peaks
    conv: Routed | None  # (B, W, ...), windows to convolutional capsules, if any
    classes: RoutedClasses  # (B, ...), capsules to classes and orphan
    peaks: Peaks | None = None  # of a network of peaks


class CapsuleOutput(NamedTuple):
    """Lengths of the classes, the orphan's by itself, and the routing if asked for."""

    scores: Tensor  # (B, n_classes)
    orphan: Tensor | None  # (B,)
    branches: tuple[BranchRouting, ...]
    logits: Tensor | None = None  # (B, n_classes), if attention routes to the classes
    alone: tuple["CapsuleOutput", ...] = ()  # of each n-gram network by itself

    def lengths(self, *, orphan: bool) -> Tensor:
        """Return the classes' lengths, with the orphan's as a last column if asked."""
        if not orphan or self.orphan is None:
            return self.scores
        return torch.cat([self.scores, self.orphan.unsqueeze(1)], 1)


class NgramBranch(nn.Module):
    """The four layers for one n-gram size, or the same without windows for peaks."""

    def __init__(
        self,
        ngrams: NgramConv | JointNgrams,
        primary: PrimaryCapsules,
        conv: ConvCapsules | None,
        classes: CapsuleLayer | AttentionLayer,
        dropout: float = 0.0,
        feature_dropout: float = 0.0,
        *,
        edge: int = 0,
        peaks: bool = False,
        numbers: tuple[int, int] | None = None,
        learns_below: bool = True,
    ) -> None:
        """Take the layers.

        Args:
            ngrams: the convolution over words.
            primary: from n-gram features to capsules.
            conv: the convolutional capsules, if any.
            classes: the layer of the classes.
            dropout: of capsules.
            feature_dropout: of n-gram features.
            edge: zero vectors before and after a text.
            peaks: route the strongest value of every feature alone.
            numbers: the first of a vector's numbers that are read, and where they end;
                None: all of them.
            learns_below: whether training needs the gradient of these numbers.
        """
        super().__init__()
        if peaks and conv is not None:
            raise ValueError("conv must be None for peaks, which have no neighbours.")
        self.edge, self.peaks, self.numbers = edge, peaks, numbers
        self.learns_below = learns_below
        self.dropout = CapsuleDropout(dropout)
        self.feature_dropout = nn.Dropout(feature_dropout)
        self.ngrams, self.primary = ngrams, primary
        self.conv, self.classes = conv, classes
        window = 1 if conv is None else conv.window
        # Tokens a text must have for one window of the last local layer.
        self.min_tokens = ngrams.ngram_size + (window - 1) * ngrams.stride

    def forward(
        self, vectors: Tensor, mask: Tensor, *, couplings: bool = True
    ) -> BranchRouting:
        """(B, T, V) and (B, T) to the routing of every layer."""
        vectors, mask = self.window(vectors, mask)
        peaks = None
        if self.peaks:
            features, inside = self.ngrams(vectors, mask)
            top, peaks = strongest(features, inside, places=couplings)
            capsules = self.primary(self.feature_dropout(top))
            inside = inside.any(1, keepdim=True)  # (B, 1)
        else:
            capsules, inside = ngram_capsules(
                self.ngrams, self.primary, vectors, mask, self.feature_dropout
            )
        primary = children = self.dropout(capsules)
        positions, routed = inside, None
        if self.conv is not None:
            routed, positions = self.conv(primary, inside, couplings=couplings)
            children = self.dropout(routed.poses)
        classes = self.classes(children, positions, couplings=couplings)
        return BranchRouting(
            self.ngrams.ngram_size,
            inside,
            primary,
            routed,
            RoutedClasses(*classes),
            peaks,
        )

    def window(self, vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return what n-grams are made of: its numbers of vectors (B, T, V), widened.

        The mask is (B, T). A text is widened by the edges and to one window at least.
        """
        if self.numbers not in (None, (0, vectors.shape[2])):
            vectors = vectors[..., slice(*self.numbers)]
        if self.training and not self.learns_below:
            vectors = vectors.detach()  # they stand beside others that learn
        vectors, mask = widen(vectors, mask, self.edge)
        return lengthen(vectors, mask, self.min_tokens)


class CapsuleNetwork(Network):
    """Embedding, n-gram networks side by side, and the average of their outputs."""

    shares: Tensor | None  # (N,), of the n-gram networks

    def __init__(
        self,
        embedding: nn.Embedding | EncoderEmbedding,
        branches: list[NgramBranch],
        *,
        n_classes: int,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        average: str = "lengths",
        pad_to: int | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        """Put n-gram networks over an embedding.

        Args:
            embedding: of words, or an encoder.
            branches: the n-gram networks.
            n_classes: the classes, the orphan not counted.
            dropout: of vectors' numbers.
            word_dropout: of whole vectors.
            average: of what: `lengths` or `poses`.
            pad_to: the length of every text, where padding votes.
            shares: one per network, of a weighted average of lengths that can be
                changed after training; None: a plain average.
        """
        super().__init__(n_classes)
        self.embedding: Any = embedding
        self.branches = nn.ModuleList(branches)
        self.average = average
        self.dropout = nn.Dropout(dropout)
        self.word_dropout = CapsuleDropout(word_dropout)
        # Set if padding votes (preset `released`): every text is padded to this length.
        self.pad_to = pad_to
        given = None if shares is None else torch.tensor(shares)
        self.register_buffer("shares", given)
        # Made once: cuBLAS keeps a workspace for every stream it has seen.
        self.streams: list[torch.cuda.Stream] = []

    def forward(
        self, ids: Tensor, mask: Tensor, *, inspect: bool = False
    ) -> CapsuleOutput:
        """Word numbers (B, T), padded on the right, and their mask to class lengths."""
        routed = self.route(ids, mask, couplings=inspect)
        logits = None
        if self.average == "poses":
            poses = torch.stack([branch.classes.poses for branch in routed])
            lengths = pose_length(poses.mean(0))  # (B, E)
        else:
            lengths = self.averaged([b.classes.lengths for b in routed])
        if routed[0].classes.logits is not None:
            logits = torch.stack([b.classes.logits for b in routed]).mean(0)  # type: ignore[misc]
        alone = (
            self.output(branch.classes.lengths, branch.classes.logits, mask)
            for branch in routed
        )
        return self.output(lengths, logits, mask)._replace(
            branches=routed if inspect else (),
            alone=tuple(alone) if self.training else (),
        )

    def averaged(self, lengths: Sequence[Tensor]) -> Tensor:
        """Return the average (B, E) of what the n-gram networks found, (B, E) each."""
        together = torch.stack(list(lengths))  # (N, B, E)
        if self.shares is None:
            return together.mean(0)
        return (together * self.shares[:, None, None]).sum(0)

    def branch_shares(self) -> list[float]:
        """Return how much of the average each n-gram network is."""
        n = len(self.branches)
        return [1 / n] * n if self.shares is None else self.shares.tolist()

    def output(
        self, lengths: Tensor, logits: Tensor | None, mask: Tensor
    ) -> CapsuleOutput:
        """Return lengths (B, E), and logits (B, n_classes) if any, as an output."""
        scores, n_classes = lengths[:, : self.n_classes], self.n_classes
        if logits is not None:
            scores = logits.sigmoid() * mask.any(1, keepdim=True)
        orphan = lengths[:, n_classes] if lengths.shape[1] > n_classes else None
        return CapsuleOutput(scores, orphan, (), logits)

    def route(
        self, ids: Tensor, mask: Tensor, *, couplings: bool
    ) -> tuple[BranchRouting, ...]:
        """Word numbers (B, T) and their mask to the routing of every n-gram network."""
        if self.pad_to is not None:
            ids = F.pad(ids, (0, self.pad_to - ids.shape[1]))
            mask = torch.ones_like(ids, dtype=torch.bool)
        vectors = self.word_dropout(self.embedding(ids))  # (B, T, V)
        vectors = self.dropout(vectors)
        return self.route_branches(vectors, mask, couplings=couplings)

    def route_branches(
        self, vectors: Tensor, mask: Tensor, *, couplings: bool
    ) -> tuple[BranchRouting, ...]:
        """Run the n-gram networks, side by side where a CUDA graph is captured.

        Each alone leaves most of a large GPU idle. In a capture the streams become
        edges of the graph, and the backward pass follows them.
        """
        if not (vectors.is_cuda and torch.cuda.is_current_stream_capturing()):
            return tuple(
                branch(vectors, mask, couplings=couplings) for branch in self.branches
            )
        routed, main = [], torch.cuda.current_stream()
        if not self.streams:
            self.streams = [torch.cuda.Stream() for _ in self.branches]
        for branch, stream in zip(self.branches, self.streams, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                routed.append(branch(vectors, mask, couplings=couplings))
        for stream in self.streams:
            main.wait_stream(stream)
        return tuple(routed)


def strongest(
    features: Tensor, inside: Tensor, *, places: bool
) -> tuple[Tensor, Peaks | None]:
    """Return the strongest value of each feature in a text, (B, 1, F), and where it is.

    Args:
        features: (B, P, F), none below zero.
        inside: (B, P), which positions are the text's.
        places: whether they are wanted; if not, there are no `Peaks`.
    """
    features = features * inside.unsqueeze(2)
    if not places:
        return features.amax(1, keepdim=True), None
    values, where = features.max(1)
    return values.unsqueeze(1), Peaks(values, where, features.shape[1])


def widen(vectors: Tensor, mask: Tensor, edge: int) -> tuple[Tensor, Tensor]:
    """Put `edge` zero vectors before and after every text that has a word."""
    if not edge:
        return vectors, mask
    before = mask[:, :1].expand(-1, 2 * edge)
    return F.pad(vectors, (0, 0, edge, edge)), torch.cat([before, mask], 1)


def lengthen(vectors: Tensor, mask: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """Pad to `tokens` positions; a text with any word counts as at least that long."""
    missing = tokens - vectors.shape[1]
    if missing > 0:
        vectors = F.pad(vectors, (0, 0, 0, missing))
        mask = F.pad(mask, (0, missing))
    start = mask[:, :1].expand(-1, tokens)  # a text with any word has a first one
    return vectors, torch.cat([start, mask[:, tokens:]], 1)
