"""Layers that read a text place by place: word vectors, n-grams, primary capsules.

A layer takes and returns a mask over positions: True where the whole n-gram lies inside
the text. Padding stands on the right: in a row, no True follows a False. Without a mask
every position is inside.

A file of word vectors knows many more words than the training texts have. They get rows
past the trained ones, as the file has them, in half precision. Those rows are a buffer
and no part of `state_dict`: no optimiser, checkpoint or copy of the best weights ever
holds them, and a model folder holds them once (`textcapsules.model.network`).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.functional import GPU_SQUASHES, check_squash
from textcapsules.model.routing import has_triton, squash_capsules

__all__ = [
    "CapsuleDropout",
    "JointNgrams",
    "NgramConv",
    "PrimaryCapsules",
    "WordEmbedding",
    "check_sizes",
    "counts_like_tensorflow",
    "edge_width",
    "ngram_capsules",
    "position_mask",
    "window_mask",
    "xavier_",
]

# A program of the fused kernel holds the features of an n-gram: beyond this, two
# products of the libraries are faster.
FUSED_FILTERS = 128


def check_sizes(**sizes: int) -> None:
    """Refuse a size that no layer can have."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"{name} must be a whole number of at least 1; got {size!r}."
            )


def counts_like_tensorflow(initialiser: str) -> bool:
    """Tell whether the fans of first weights are counted as TensorFlow does."""
    if initialiser not in ("xavier", "tensorflow"):
        raise ValueError(
            f"initialiser must be xavier or tensorflow; got {initialiser!r}."
        )
    return initialiser == "tensorflow"


def position_mask(mask: Tensor | None, values: Tensor) -> Tensor:
    """Return the mask (B, P) of values (B, P, ...), all True where none is given."""
    shape = values.shape[:2]
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=values.device)
    if mask.shape != shape or mask.dtype != torch.bool:
        raise ValueError(
            f"mask must be of shape {tuple(shape)} and of type torch.bool; got "
            f"{tuple(mask.shape)} and {mask.dtype}. True stands for a place that is "
            "not padding."
        )
    return mask


def check_vectors(vectors: Tensor, in_size: int, ngram_size: int) -> None:
    """Refuse word vectors of another size, and texts without a single n-gram."""
    fits = vectors.ndim == 3 and vectors.shape[2] == in_size
    if not fits or vectors.shape[1] < ngram_size:
        raise ValueError(
            f"vectors must be of shape (B, T, {in_size}) with T of at least "
            f"{ngram_size}, one n-gram; got {tuple(vectors.shape)}. Pad short texts "
            "with zeros."
        )


def window_mask(mask: Tensor, size: int, stride: int = 1) -> Tensor:
    """Return which windows of `size` lie wholly where `mask` (B, T) is True.

    With padding on the right a window is inside if its last position is.
    """
    return mask[:, size - 1 :: stride]  # (B, P)


def edge_width(ngram_size: int, *, joint: bool = False) -> int:
    """Return the zero vectors at each end of a text, if n-grams reach over its ends.

    They leave every n-gram at least one word. For several sizes side by side (`joint`),
    they are half of the longest, so that every word is the middle of one.
    """
    return ngram_size // 2 if joint else ngram_size - 1


def xavier_(weight: Tensor, fan_in: int, fan_out: int, gain: float = 1.0) -> None:
    """Fill `weight` uniformly, with Glorot and Bengio's limit for these fans."""
    limit = gain * math.sqrt(6 / (fan_in + fan_out))
    nn.init.uniform_(weight, -limit, limit)


class WordEmbedding(nn.Embedding):
    """An embedding in which word numbers past the trained rows have fixed vectors."""

    extra: Tensor  # (n_extra, V) float16
    # Whether training texts have such words; where none has, a step is spared.
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
        trained = super().forward(input.masked_fill(is_extra, 0))
        fixed = F.embedding((input - self.num_embeddings).clamp(min=0), self.extra)
        return torch.where(is_extra.unsqueeze(-1), fixed.to(trained.dtype), trained)


class NgramConv(nn.Module):
    """N-gram features at every position: valid convolution over words, then ReLU.

    Args:
        in_size: V, size of a word vector.
        filters: F, features of an n-gram.
        ngram_size: K1, words of an n-gram.
        stride: step from one n-gram to the next.
        initialiser: `xavier`, or `tensorflow`: with the fans that TensorFlow counts.

    >>> features, mask = NgramConv(8, filters=4, ngram_size=3)(torch.randn(2, 5, 8))
    >>> features.shape, mask.shape
    (torch.Size([2, 3, 4]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        in_size: int,
        filters: int = 32,
        ngram_size: int = 3,
        *,
        stride: int = 1,
        initialiser: str = "xavier",
    ) -> None:
        super().__init__()
        check_sizes(
            in_size=in_size, filters=filters, ngram_size=ngram_size, stride=stride
        )
        self.ngram_size, self.stride = ngram_size, stride
        self.conv = nn.Conv1d(in_size, filters, ngram_size, stride)
        fan_in = ngram_size * in_size
        # TensorFlow saw a (K1, V, 1, B) kernel, an image with one channel: its fan-out
        # counts the embedding too, which makes the first weights 5.5 times smaller.
        wide = counts_like_tensorflow(initialiser)
        fan_out = filters * (fan_in if wide else ngram_size)
        xavier_(self.conv.weight, fan_in, fan_out)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]

    def kernel(self) -> tuple[Tensor, Tensor]:
        """Return the filters (F, V, K) and their biases (F,)."""
        return self.conv.weight, self.conv.bias  # type: ignore[return-value]

    def forward(
        self, vectors: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(B, T, V) and (B, T) to features M (B, P, F) and their mask (B, P)."""
        check_vectors(vectors, self.conv.in_channels, self.ngram_size)
        mask = position_mask(mask, vectors)
        features = F.relu(self.conv(vectors.transpose(1, 2)))  # (B, F, P)
        return features.transpose(1, 2), window_mask(mask, self.ngram_size, self.stride)


class JointNgrams(nn.Module):
    """N-gram features of several sizes side by side at every position.

    A position is one of the longest n-gram's; the shorter ones lie in its middle. So
    this is a convolution of the longest size, some of whose filters have zeros at both
    ends, and everything above it sees n-grams of that one size.

    Args:
        in_size: V, size of a word vector.
        filters: features of every size.
        ngram_sizes: words of the n-grams.
        stride: as for `NgramConv`.
        initialiser: as for `NgramConv`.

    >>> layer = JointNgrams(8, filters=4, ngram_sizes=(1, 2, 3))
    >>> features, mask = layer(torch.randn(2, 5, 8))
    >>> features.shape, mask.shape
    (torch.Size([2, 3, 12]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        in_size: int,
        filters: int = 32,
        ngram_sizes: Sequence[int] = (3, 4, 5),
        *,
        stride: int = 1,
        initialiser: str = "xavier",
    ) -> None:
        super().__init__()
        if not ngram_sizes:
            raise ValueError("ngram_sizes must be one size or more; got none.")
        self.ngram_size, self.stride = max(ngram_sizes), stride
        self.parts = nn.ModuleList(
            NgramConv(in_size, filters, size, stride=stride, initialiser=initialiser)
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

    def forward(
        self, vectors: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(B, T, V) and (B, T) to features M (B, P, F) and their mask (B, P)."""
        check_vectors(vectors, vectors.shape[-1], self.ngram_size)
        mask = position_mask(mask, vectors)
        inside = window_mask(mask, self.ngram_size, self.stride)
        reach = (inside.shape[1] - 1) * self.stride  # from the first n-gram to the last
        features = []
        for part, start in zip(self.parts, self.starts(), strict=True):
            seen = slice(start, start + reach + part.ngram_size)  # type: ignore[operator]
            features.append(part(vectors[:, seen], mask[:, seen])[0])
        return torch.cat(features, 2), inside


class PrimaryCapsules(nn.Module):
    """Capsules at every position, each a squashed linear map of its features.

    Args:
        in_size: F, features of a position.
        out_size: D, size of a capsule's pose.
        n_out: C, capsules per position.
        squash: length of a pose as a function of its norm, as for `RoutingOptions`.

    >>> PrimaryCapsules(32, 16, 8)(torch.randn(2, 5, 32)).shape
    torch.Size([2, 5, 8, 16])
    """

    def __init__(
        self, in_size: int, out_size: int = 16, n_out: int = 32, *, squash: str = "norm"
    ) -> None:
        super().__init__()
        check_sizes(in_size=in_size, out_size=out_size, n_out=n_out)
        check_squash(squash)
        self.shape, self.squash = (n_out, out_size), squash
        self.precision = "ieee"  # of products on a GPU, see `set_precision`
        self.linear = nn.Linear(in_size, n_out * out_size)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: Tensor) -> Tensor:
        """M (..., F) to capsules (..., C, D)."""
        if features.ndim == 3 and features.device.type == "cpu":
            # The same product as a convolution of width one. It reads and returns
            # features as `NgramConv` leaves them, (B, F, P): a step spares copies.
            weight = self.linear.weight.unsqueeze(2)
            columns = F.conv1d(features.transpose(1, 2), weight, self.linear.bias)
            poses = columns.transpose(1, 2).contiguous()
        else:
            poses = self.linear(features)
        return squash_capsules(poses.unflatten(-1, self.shape), self.squash)


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
    if not (fused and primary.squash in (*GPU_SQUASHES, "none") and has_triton()):
        features, inside = ngrams(vectors, mask)
        return primary(dropout(features) if drops else features), inside  # type: ignore[misc]
    from textcapsules.model.kernels.gpu.capsules import primary_capsules_gpu

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


class CapsuleDropout(nn.Module):
    """Drops whole capsules in training, and lengthens the others to make up for it.

    Args:
        share: of the capsules that are dropped.

    >>> dropped = CapsuleDropout(0.5)(torch.ones(1, 2, 100, 16))
    >>> sorted(set(dropped.flatten().tolist()))
    [0.0, 2.0]
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1; got {share!r}.")
        self.share = share

    def forward(self, capsules: Tensor) -> Tensor:
        """(..., D), some of the capsules zero."""
        if not (self.training and self.share):
            return capsules
        ones = capsules.new_ones(*capsules.shape[:-1], 1)
        return capsules * F.dropout(ones, self.share)
