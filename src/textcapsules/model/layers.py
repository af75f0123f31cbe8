"""The four layers of the paper, each a small module of plain numbers.

A layer takes and returns a mask over positions: True where the whole n-gram, or the
whole window of n-grams, lies inside the text. What is False never votes. Padding stands
on the right: in a row, no True follows a False.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.functional import SQUASHES
from textcapsules.model.routing import (
    Routed,
    RoutingOptions,
    has_triton,
    route_windows,
    squash_capsules,
)

__all__ = [
    "CapsuleDropout",
    "ClassCapsules",
    "ConvCapsules",
    "NgramConv",
    "PrimaryCapsules",
    "ngram_capsules",
    "set_precision",
]


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

    def forward(self, vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, V) and (B, T) to features M (B, P, F) and their mask (B, P)."""
        features = F.relu(self.conv(vectors.transpose(1, 2)))  # (B, F, P)
        return features.transpose(1, 2), window_mask(mask, self.ngram_size, self.stride)


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
    ngrams: NgramConv, primary: PrimaryCapsules, vectors: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """(B, T, V) and (B, T) to primary capsules (B, P, C, D) and their mask (B, P).

    Both layers one after the other; on a GPU, by one kernel after one product.
    """
    fused = vectors.is_cuda and vectors.dtype == torch.float32 and vectors.numel()
    if not (fused and primary.squash in (*SQUASHES, "none") and has_triton()):
        features, inside = ngrams(vectors, mask)
        return primary(features), inside
    from textcapsules.model.primary_gpu import primary_capsules_gpu

    capsules = primary_capsules_gpu(
        vectors,
        ngrams.conv.weight,
        ngrams.conv.bias,  # type: ignore[arg-type]
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
    ) -> Routed:
        """(B, P, C, D) and (B, P) to one pose (B, J, D) a class."""
        # One window, the whole text.
        routed = self.route(capsules, mask.unsqueeze(1), couplings)
        return map_routed(lambda found: found.squeeze(1), routed)
