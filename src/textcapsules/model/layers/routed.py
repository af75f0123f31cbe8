"""Layers that route capsules to parents: by agreement, in windows, or by attention.

A child whose mask is False never votes. Without a mask all children vote.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from textcapsules.model.layers.local import (
    PrimaryCapsules,
    check_sizes,
    counts_like_tensorflow,
    position_mask,
    window_mask,
    xavier_,
)
from textcapsules.model.routing import (
    Attended,
    Routed,
    RoutingOptions,
    attend,
    check_options,
    route_windows,
)

__all__ = [
    "AttentionLayer",
    "CapsuleLayer",
    "ConvCapsules",
    "RoutedClasses",
    "RoutedLayer",
    "set_precision",
]

MASS_FLOOR = 1e-3  # added to a parent's mass: its logarithm must have a bound


class RoutedLayer(nn.Module):
    """A transform with its bias, and how to route: what both routed layers share.

    The attribute `backend` says which code routes (see `textcapsules.route`), and
    `precision` how a GPU forms products (see `set_precision`). The arguments are those
    of `CapsuleLayer`.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        n_out: int,
        *,
        n_in: int | None = None,
        options: RoutingOptions = RoutingOptions(),
        bias: bool = True,
        initialiser: str = "xavier",
        transform_gain: float = 1.0,
        routing_gain: float = 20.0,
        learn_gain: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(in_size=in_size, out_size=out_size, n_out=n_out)
        if n_in is not None:
            check_sizes(n_in=n_in)
        if not routing_gain > 0:
            raise ValueError(f"routing_gain must be above 0; got {routing_gain!r}.")
        check_options(options)
        self.options, self.backend, self.precision = options, "auto", "ieee"
        lead = () if n_in is None else (n_in,)
        self.transform = nn.Parameter(torch.empty(*lead, n_out, in_size, out_size))
        # TensorFlow saw one (D, J·H) kernel; each parent's own map is (D, H).
        fan_out = out_size * (n_out if counts_like_tensorflow(initialiser) else 1)
        xavier_(self.transform, in_size, fan_out, transform_gain)
        self.bias = nn.Parameter(torch.zeros(*lead, n_out, out_size)) if bias else None
        # Its logarithm is learnt, so that it stays above zero.
        self.log_gain = (
            nn.Parameter(torch.tensor(math.log(routing_gain)), learn_gain)
            if options.normalise == "total"
            else None
        )

    def extra_repr(self) -> str:
        """Return the sizes, for `repr`."""
        *n_in, n_out, in_size, out_size = self.transform.shape
        own = f", n_in={n_in[0]}" if n_in else ""
        return f"in_size={in_size}, out_size={out_size}, n_out={n_out}{own}"

    def route(self, capsules: Tensor, mask: Tensor, couplings: bool) -> Routed:
        """Route (B, P, C, D) capsules in the windows of a mask (B, W, K)."""
        transform, bias = self.transform, self.bias
        if transform.ndim == 4:  # a short batch uses the first positions' transforms
            n_children = mask.shape[2] * capsules.shape[2]
            if n_children > len(transform):
                raise ValueError(
                    f"capsules must be at most n_in, {len(transform)}; got "
                    f"{n_children}. Raise n_in, or leave it out to share a transform."
                )
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
        return map_routed(lambda part: part.to(dtype), routed)


def map_routed(function: Callable[[Tensor], Tensor], routed: Routed) -> Routed:
    """Apply a function to all parts; couplings that were not asked for stay None."""
    parts = (None if part is None else function(part) for part in routed)
    return Routed(*parts)  # type: ignore[arg-type]


def capsules_by_position(capsules: Tensor, in_size: int) -> Tensor:
    """Return capsules (B, I, D) or (B, P, C, D) as (B, P, C, D)."""
    if capsules.ndim not in (3, 4) or capsules.shape[-1] != in_size:
        raise ValueError(
            f"capsules must be of shape (B, I, {in_size}) or (B, P, C, {in_size}); "
            f"got {tuple(capsules.shape)}."
        )
    return capsules if capsules.ndim == 4 else capsules.unsqueeze(2)


class CapsuleLayer(RoutedLayer):
    """Routes all capsules of a text to `n_out` parents by agreement.

    With one parent per class, and one more for background (the orphan), this is the
    last layer of the paper's networks: a class's length is its score.

    Args:
        in_size: D, size of a child's pose.
        out_size: H, size of a parent's pose.
        n_out: J, the parents.
        n_in: children, if each is to have a transform per parent of its own; without
            it, all children of a parent share one.
        options: iterations, leaky softmax, amendment, squash, normalisation.
        bias: whether votes have a bias.
        initialiser: `xavier`, or `tensorflow`: with the fans that TensorFlow counts.
        transform_gain: factor on the first values of the transform.
        routing_gain: where the options normalise, what the weights of all children sum
            to, at first or for good.
        learn_gain: whether training changes that sum.

    >>> layer = CapsuleLayer(in_size=8, out_size=16, n_out=3)
    >>> routed = layer(torch.randn(2, 5, 8))
    >>> routed.poses.shape, routed.lengths.shape, routed.couplings.shape
    (torch.Size([2, 3, 16]), torch.Size([2, 3]), torch.Size([2, 5, 3]))
    """

    def forward(
        self, capsules: Tensor, mask: Tensor | None = None, *, couplings: bool = True
    ) -> Routed:
        """Route the children of every text.

        Args:
            capsules: (B, I, D), or (B, P, C, D): C capsules at each of P positions.
            mask: (B, I) or (B, P), False where a child or a position is padding.
            couplings: whether they are wanted; a kernel leaves them None where not.

        Returns:
            Poses (B, J, H), lengths (B, J) and couplings (B, I, J), I = P·C children.
        """
        capsules = capsules_by_position(capsules, self.transform.shape[-2])
        # One window, the whole text.
        windows = position_mask(mask, capsules).unsqueeze(1)  # (B, 1, P)
        routed = self.route(capsules, windows, couplings)
        return map_routed(lambda part: part.squeeze(1), routed)


class ConvCapsules(RoutedLayer):
    """Routes the capsules in every window of positions to `n_out` parents of its own.

    The arguments are those of `CapsuleLayer`, without `n_in`, and

    Args:
        window: K, positions that a parent sees.
        in_types: C, capsules per position, if each child of a window is to have
            transforms of its own.

    >>> layer = ConvCapsules(in_size=8, out_size=16, n_out=4, window=3)
    >>> routed, mask = layer(torch.randn(2, 5, 6, 8))
    >>> routed.poses.shape, routed.couplings.shape, mask.shape
    (torch.Size([2, 3, 4, 16]), torch.Size([2, 3, 18, 4]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        n_out: int,
        *,
        window: int = 3,
        in_types: int | None = None,
        options: RoutingOptions = RoutingOptions(),
        bias: bool = True,
        initialiser: str = "xavier",
        transform_gain: float = 1.0,
        routing_gain: float = 20.0,
        learn_gain: bool = True,
    ) -> None:
        check_sizes(window=window)
        if in_types is not None:
            check_sizes(in_types=in_types)
        super().__init__(
            in_size,
            out_size,
            n_out,
            n_in=None if in_types is None else window * in_types,
            options=options,
            bias=bias,
            initialiser=initialiser,
            transform_gain=transform_gain,
            routing_gain=routing_gain,
            learn_gain=learn_gain,
        )
        self.window = window

    def forward(
        self, capsules: Tensor, mask: Tensor | None = None, *, couplings: bool = True
    ) -> tuple[Routed, Tensor]:
        """Route the children of every window.

        Args:
            capsules: (B, P, C, D), or (B, P, D): one capsule per position.
            mask: (B, P), False where a position is padding, which stands on the right.
            couplings: whether they are wanted; a kernel leaves them None where not.

        Returns:
            Poses (B, W, J, H), lengths (B, W, J) and couplings (B, W, K·C, J) of
            W = P - K + 1 windows, and which windows (B, W) lie inside the text.
        """
        capsules = capsules_by_position(capsules, self.transform.shape[-2])
        if capsules.shape[1] < self.window:
            raise ValueError(
                f"capsules must have at least {self.window} positions, one window; got "
                f"{capsules.shape[1]}. Pad them, with a mask."
            )
        inside = window_mask(position_mask(mask, capsules), self.window)  # (B, W)
        windows = inside.unsqueeze(2).expand(-1, -1, self.window)  # (B, W, K)
        return self.route(capsules, windows, couplings), inside


class RoutedClasses(NamedTuple):
    """What was routed to the classes; only attention has logits."""

    poses: Tensor  # (B, J, H)
    lengths: Tensor  # (B, J)
    couplings: Tensor  # (B, I, J); a kernel not asked for them gives None
    logits: Tensor | None = None  # (B, n_out), of the classes without the orphan


class AttentionLayer(nn.Module):
    """Routes all capsules of a text to `n_out` parents by attention.

    The logit of parent j is a learnt product with its normalised pose plus a learnt
    multiple of the logarithm of its mass: w_j · LN(z_j) + b_j + α log m_j. Its length
    is the logit's sigmoid; the orphan's, its share of all children.

    Args:
        in_size: D, size of a child's pose.
        out_size: H, size of a parent's pose.
        n_out: J, the parents that have a logit.
        orphan: whether there is one more parent, for background, without a logit.
        iterations: how often the parents ask.
        leaky: whether a child may answer nobody.
        compete: whether what one parent wins is lost to the others.

    >>> layer = AttentionLayer(in_size=8, out_size=16, n_out=3, orphan=True)
    >>> routed = layer(torch.randn(2, 5, 8))
    >>> routed.poses.shape, routed.couplings.shape, routed.logits.shape
    (torch.Size([2, 4, 16]), torch.Size([2, 5, 4]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        n_out: int,
        *,
        orphan: bool = False,
        iterations: int = 3,
        leaky: bool = True,
        compete: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(
            in_size=in_size, out_size=out_size, n_out=n_out, iterations=iterations
        )
        self.n_out, self.iterations = n_out, iterations
        self.leaky, self.compete = leaky, compete
        self.key = nn.Linear(in_size, out_size)
        self.value = nn.Linear(in_size, out_size)
        self.query = nn.Parameter(torch.randn(n_out + orphan, out_size))
        self.norm = nn.LayerNorm(out_size)
        self.weight = nn.Parameter(0.05 * torch.randn(n_out, out_size))
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.mass_weight = nn.Parameter(torch.tensor(0.5))

    def forward(
        self, capsules: Tensor, mask: Tensor | None = None, *, couplings: bool = True
    ) -> RoutedClasses:
        """Route the children of every text; the arguments are `CapsuleLayer`'s.

        The couplings (B, I, J) are always there, whether asked for or not.
        """
        del couplings
        capsules = capsules_by_position(capsules, self.key.in_features)
        inside = position_mask(mask, capsules).repeat_interleave(
            capsules.shape[2], 1
        )  # (B, I)
        children = capsules.flatten(1, 2)  # (B, I, D)
        attended = attend(
            self.key(children),
            self.value(children),
            self.query,
            inside,
            self.norm,
            iterations=self.iterations,
            leaky=self.leaky,
            compete=self.compete,
        )
        logits = self.logits(attended)
        votes = inside.any(1, keepdim=True)  # a text without words has no class
        shares = attended.mass / inside.sum(1, keepdim=True).clamp(min=1)  # (B, J)
        lengths = torch.cat(
            [logits.sigmoid() * votes, shares[:, self.n_out :]], 1
        )  # (B, J)
        return RoutedClasses(attended.poses, lengths, attended.couplings, logits)

    def logits(self, attended: Attended) -> Tensor:
        """Return the logit of every parent but the orphan, (B, n_out)."""
        poses = self.norm(attended.poses[:, : self.n_out])  # (B, n, H)
        log_mass = torch.log(attended.mass[:, : self.n_out] + MASS_FLOOR)
        return (poses * self.weight).sum(2) + self.bias + self.mass_weight * log_mass


def set_precision(network: nn.Module, precision: str) -> None:
    """Set how every capsule layer of a network forms products on a GPU.

    `ieee`, `tf32` or `tf32x3`, as for routing; or `bf16`, which also stores what is
    routed in 16 bits.
    """
    for layer in network.modules():
        if isinstance(layer, PrimaryCapsules | RoutedLayer):
            layer.precision = precision
