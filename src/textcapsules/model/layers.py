"""The four layers of the paper, each a small module of plain numbers, and two more.

`JointNgrams` stands in for `NgramConv`, `AttentionClasses` for `ClassCapsules`.

A layer takes and returns a mask over positions: True where the whole n-gram, or the
whole window of n-grams, lies inside the text. What is False never votes. Padding stands
on the right: in a row, no True follows a False.

Word vectors: rows that training sets, and after them fixed ones of further words.

A file of word vectors knows many more words than the training texts have. They get rows
past the trained ones, as the file has them, in half precision. Those rows are a buffer
and no part of `state_dict`: no optimiser, checkpoint or copy of the best weights ever
holds them, and a model folder holds them once (see `saved_tensors`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.functional import SQUASHES
from textcapsules.model.routing import (
    Attended,
    Routed,
    RoutingOptions,
    attend,
    has_triton,
    route_windows,
    squash_capsules,
)

__all__ = [
    "EXTRA",
    "AttentionClasses",
    "CapsuleDropout",
    "ClassCapsules",
    "ConvCapsules",
    "JointNgrams",
    "NgramConv",
    "PrimaryCapsules",
    "RoutedClasses",
    "WordEmbedding",
    "ngram_capsules",
    "saved_tensors",
    "set_precision",
]

# A program of the fused kernel holds the features of an n-gram: beyond this, two
# products of the libraries are faster.
FUSED_FILTERS = 128

LEAST_WON = 1e-3  # added to a class's mass: its logarithm must have a bound


def window_mask(mask: Tensor, size: int, stride: int = 1) -> Tensor:
    """Return which windows of `size` lie wholly where `mask` (B, T) is True.

    With padding on the right a window is inside if its last position is.
    """
    return mask[:, size - 1 :: stride]  # (B, P)


def xavier_(weight: Tensor, fan_in: int, fan_out: int, gain: float = 1.0) -> None:
    """Fill `weight` uniformly, with Glorot and Bengio's limit for these fans."""
    limit = gain * math.sqrt(6 / (fan_in + fan_out))
    nn.init.uniform_(weight, -limit, limit)


class NgramConv(nn.Module):
    """N-gram features at every position: valid convolution over words, then ReLU."""

    def __init__(
        self,
        *,
        embedding_size: int,
        filters: int,
        ngram_size: int,
        stride: int = 1,
        initialiser: str = "xavier",
    ) -> None:
        super().__init__()
        self.ngram_size, self.stride = ngram_size, stride
        self.conv = nn.Conv1d(embedding_size, filters, ngram_size, stride)
        fan_in = ngram_size * embedding_size
        # TensorFlow saw a (K1, V, 1, B) kernel, an image with one channel: its fan-out
        # counts the embedding too, which makes the first weights 5.5 times smaller.
        fan_out = filters * (fan_in if initialiser == "tensorflow" else ngram_size)
        xavier_(self.conv.weight, fan_in, fan_out)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]

    def kernel(self) -> tuple[Tensor, Tensor]:
        """Return the filters (F, V, K) and their biases (F,)."""
        return self.conv.weight, self.conv.bias  # type: ignore[return-value]

    def forward(self, vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, V) and (B, T) to features M (B, P, F) and their mask (B, P)."""
        features = F.relu(self.conv(vectors.transpose(1, 2)))  # (B, F, P)
        return features.transpose(1, 2), window_mask(mask, self.ngram_size, self.stride)


class JointNgrams(nn.Module):
    """N-gram features of several sizes side by side at every position.

    A position is one of the longest n-gram's; the shorter ones lie in its middle. So
    this is a convolution of the longest size, some of whose filters have zeros at both
    ends, and everything above it sees n-grams of that one size.
    """

    def __init__(
        self, *, ngram_sizes: Sequence[int], stride: int = 1, **settings
    ) -> None:
        super().__init__()
        self.ngram_size, self.stride = max(ngram_sizes), stride
        self.parts = nn.ModuleList(
            NgramConv(ngram_size=size, stride=stride, **settings)
            for size in ngram_sizes
        )

    def starts(self) -> list[int]:
        """Return where each size's n-gram begins in the longest one."""
        return [(self.ngram_size - part.ngram_size) // 2 for part in self.parts]  # type: ignore[operator]

    def kernel(self) -> tuple[Tensor, Tensor]:
        """Return the filters (F, V, K) of all sizes and their biases (F,)."""
        filters, biases = [], []
        for part, start in zip(self.parts, self.starts(), strict=True):
            weight, bias = part.kernel()  # type: ignore[operator]
            after = self.ngram_size - start - weight.shape[2]
            filters.append(F.pad(weight, (start, after)))
            biases.append(bias)
        return torch.cat(filters), torch.cat(biases)

    def forward(self, vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, V) and (B, T) to features M (B, P, F) and their mask (B, P)."""
        inside = window_mask(mask, self.ngram_size, self.stride)
        reach = (inside.shape[1] - 1) * self.stride  # from the first n-gram to the last
        features = [
            part(vectors[:, start : start + reach + part.ngram_size], mask)[0]  # type: ignore[operator]
            for part, start in zip(self.parts, self.starts(), strict=True)
        ]
        return torch.cat(features, 2), inside


class PrimaryCapsules(nn.Module):
    """C capsules at every position, each a squashed linear map of the features."""

    def __init__(
        self, *, filters: int, capsule_types: int, capsule_size: int, squash: str
    ) -> None:
        super().__init__()
        self.shape, self.squash = (capsule_types, capsule_size), squash
        self.precision = "ieee"
        self.linear = nn.Linear(filters, capsule_types * capsule_size)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: Tensor) -> Tensor:
        """M (B, P, F) to capsules (B, P, C, D)."""
        poses = self.linear(features).unflatten(-1, self.shape)  # (B, P, C, D)
        return squash_capsules(poses, self.squash)


def ngram_capsules(
    ngrams: NgramConv | JointNgrams,
    primary: PrimaryCapsules,
    vectors: Tensor,
    mask: Tensor,
    dropout: nn.Module | None = None,
) -> tuple[Tensor, Tensor]:
    """(B, T, V) and (B, T) to primary capsules (B, P, C, D) and their mask (B, P).

    Both layers one after the other, with `dropout` in between if it drops anything. On
    a GPU, where it drops nothing and filters are few, one kernel after one product.
    """
    drops = isinstance(dropout, nn.Dropout) and dropout.training and dropout.p > 0
    fused = vectors.is_cuda and vectors.dtype == torch.float32 and vectors.numel()
    fused = fused and not drops and primary.linear.in_features <= FUSED_FILTERS
    if not (fused and primary.squash in (*SQUASHES, "none") and has_triton()):
        features, inside = ngrams(vectors, mask)
        return primary(dropout(features) if drops else features), inside  # type: ignore[misc]
    from textcapsules.model.kernels.gpu.primary import primary_capsules_gpu

    capsules = primary_capsules_gpu(
        vectors,
        *ngrams.kernel(),
        primary.linear.weight,
        primary.linear.bias,
        shape=primary.shape,
        stride=ngrams.stride,
        squash=primary.squash,
        precision="ieee" if primary.precision == "bf16" else primary.precision,
    )
    return capsules, window_mask(mask, ngrams.ngram_size, ngrams.stride)


def set_precision(network: nn.Module, precision: str) -> None:
    """Set how every capsule layer of a network forms products on a GPU.

    `ieee`, `tf32` or `tf32x3`, as for routing; or `bf16`, which also stores what is
    routed in 16 bits.
    """
    for layer in network.modules():
        if isinstance(layer, PrimaryCapsules | RoutedLayer):
            layer.precision = precision


class CapsuleDropout(nn.Module):
    """Drops whole capsules in training, and lengthens the others to make up for it."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, capsules: Tensor) -> Tensor:
        """(B, P, C, D), some of the B·P·C capsules zero."""
        if not (self.training and self.share):
            return capsules
        ones = capsules.new_ones(*capsules.shape[:-1], 1)
        return capsules * F.dropout(ones, self.share)


class RoutedLayer(nn.Module):
    """A transform with its bias, and how to route: what both routed layers share.

    `gain` is a factor on the first values of the transform, `routing_gain` what
    normalised weights of the children sum to, at first or for good.
    """

    def __init__(
        self,
        *,
        n_children: int,
        n_parents: int,
        capsule_size: int,
        options: RoutingOptions,
        shared: bool = True,
        bias: bool = True,
        initialiser: str = "xavier",
        gain: float = 1.0,
        routing_gain: float = 1.0,
        learn_gain: bool = True,
    ) -> None:
        super().__init__()
        self.options, self.backend, self.precision = options, "auto", "ieee"
        lead = () if shared else (n_children,)
        d = capsule_size
        self.transform = nn.Parameter(torch.empty(*lead, n_parents, d, d))
        # TensorFlow saw one (d, J·d) kernel; each parent's own map is (d, d).
        fan_out = d * n_parents if initialiser == "tensorflow" else d
        xavier_(self.transform, d, fan_out, gain)
        self.bias = nn.Parameter(torch.zeros(*lead, n_parents, d)) if bias else None
        # Its logarithm is learnt, so that it stays above zero.
        self.log_gain = (
            nn.Parameter(torch.tensor(math.log(routing_gain)), learn_gain)
            if options.normalise == "total"
            else None
        )

    def route(self, capsules: Tensor, mask: Tensor, couplings: bool) -> Routed:
        """Route (B, P, C, D) capsules in the windows of a mask (B, W, K)."""
        transform, bias = self.transform, self.bias
        if transform.ndim == 4:  # a short batch uses the first positions' transforms
            n_children = mask.shape[2] * capsules.shape[2]
            transform = transform[:n_children]
            bias = None if bias is None else bias[:n_children]
        dtype, precision = capsules.dtype, self.precision
        if precision == "bf16":
            precision = "ieee"
            if capsules.is_cuda:
                capsules, transform = capsules.bfloat16(), transform.bfloat16()
                bias = None if bias is None else bias.bfloat16()
        routed = route_windows(
            capsules,
            transform,
            bias,
            mask,
            self.options,
            gain=None if self.log_gain is None else self.log_gain.exp(),
            couplings=couplings,
            backend=self.backend,
            precision=precision,
        )
        return map_routed(lambda found: found.to(dtype), routed)


def map_routed(function: Callable[[Tensor], Tensor], routed: Routed) -> Routed:
    """Apply a function to all that was found; couplings not asked for stay None."""
    found = (None if t is None else function(t) for t in routed)
    return Routed(*found)  # type: ignore[arg-type]


class RoutedClasses(NamedTuple):
    """What was routed to the classes; only attention has logits."""

    poses: Tensor  # (B, J, H)
    lengths: Tensor  # (B, J)
    couplings: Tensor  # (B, I, J); a kernel not asked for them gives None
    logits: Tensor | None = None  # (B, n_classes)


class ConvCapsules(RoutedLayer):
    """Parents that each see a window of K positions times C capsule types."""

    def __init__(self, *, window: int, capsule_types: int, **settings) -> None:
        super().__init__(n_children=window * capsule_types, **settings)
        self.window = window

    def forward(
        self, capsules: Tensor, mask: Tensor, *, couplings: bool = True
    ) -> tuple[Tensor, Tensor, Routed]:
        """(B, P, C, D) and (B, P) to parents (B, W, J, D), their mask and routing."""
        inside = window_mask(mask, self.window)  # (B, W)
        windows = inside.unsqueeze(2).expand(-1, -1, self.window)  # (B, W, K)
        routed = self.route(capsules, windows, couplings)
        return routed.poses, inside, routed


class ClassCapsules(RoutedLayer):
    """One parent a class, and the orphan, over every capsule of the text."""

    def forward(
        self, capsules: Tensor, mask: Tensor, *, couplings: bool = True
    ) -> RoutedClasses:
        """(B, P, C, D) and (B, P) to one pose (B, J, D) a class."""
        # One window, the whole text.
        routed = self.route(capsules, mask.unsqueeze(1), couplings)
        return RoutedClasses(*map_routed(lambda found: found.squeeze(1), routed))


class AttentionClasses(nn.Module):
    """One parent per class, and the orphan, found by attention over the whole text.

    The logit of class j is a learnt product with its normalised pose plus a learnt
    multiple of the logarithm of its mass: w_j · LN(z_j) + b_j + α log m_j. In place of
    a length it has the logit's sigmoid; the orphan, its share of all children.
    """

    def __init__(
        self,
        *,
        n_classes: int,
        orphan: bool,
        child_size: int,
        capsule_size: int,
        iterations: int,
        leaky: bool,
        compete: bool = True,
    ) -> None:
        super().__init__()
        self.n_classes, self.iterations = n_classes, iterations
        self.leaky, self.compete = leaky, compete
        self.key = nn.Linear(child_size, capsule_size)
        self.value = nn.Linear(child_size, capsule_size)
        self.query = nn.Parameter(torch.randn(n_classes + orphan, capsule_size))
        self.norm = nn.LayerNorm(capsule_size)
        self.weight = nn.Parameter(0.05 * torch.randn(n_classes, capsule_size))
        self.bias = nn.Parameter(torch.zeros(n_classes))
        self.mass_weight = nn.Parameter(torch.tensor(0.5))

    def forward(
        self, capsules: Tensor, mask: Tensor, *, couplings: bool = True
    ) -> RoutedClasses:
        """(B, P, C, D) and (B, P) to one pose (B, J, H) per class."""
        children = capsules.flatten(1, 2)  # (B, I, D)
        inside = (
            mask.unsqueeze(2).expand(-1, -1, capsules.shape[2]).flatten(1)
        )  # (B, I)
        found = attend(
            self.key(children),
            self.value(children),
            self.query,
            inside,
            self.norm,
            iterations=self.iterations,
            leaky=self.leaky,
            compete=self.compete,
        )
        logits = self.logits(found)
        votes = inside.any(1, keepdim=True)  # a text without words has no class
        shares = found.mass / inside.sum(1, keepdim=True).clamp(min=1)  # (B, J)
        lengths = torch.cat(
            [logits.sigmoid() * votes, shares[:, self.n_classes :]], 1
        )  # (B, J)
        return RoutedClasses(found.poses, lengths, found.couplings, logits)

    def logits(self, found: Attended) -> Tensor:
        """Return what speaks for every class, (B, n_classes)."""
        poses = self.norm(found.poses[:, : self.n_classes])  # (B, n, H)
        won = torch.log(found.mass[:, : self.n_classes] + LEAST_WON)
        return (poses * self.weight).sum(2) + self.bias + self.mass_weight * won


EXTRA = "embedding.extra"  # the fixed rows' name in a model folder


class WordEmbedding(nn.Embedding):
    """An embedding whose numbers past the trained rows stand for fixed ones."""

    extra: Tensor  # (n_extra, V) float16
    # Whether training texts have words of theirs; where none has, a step is spared.
    extra_in_training = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        nothing = torch.zeros(0, self.embedding_dim, dtype=torch.float16)
        self.register_buffer("extra", nothing, persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Word numbers of any shape to vectors, float32."""
        spared = self.training and not self.extra_in_training
        if spared or not len(self.extra):
            return super().forward(input)
        is_extra = input >= self.num_embeddings
        own = super().forward(input.masked_fill(is_extra, 0))
        others = F.embedding((input - self.num_embeddings).clamp(min=0), self.extra)
        return torch.where(is_extra.unsqueeze(-1), others.to(own.dtype), own)


def saved_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return all that a model folder must hold of a network."""
    tensors = network.state_dict()
    embedding = getattr(network, "embedding", None)
    if isinstance(embedding, WordEmbedding) and len(embedding.extra):
        tensors[EXTRA] = embedding.extra
    return tensors
