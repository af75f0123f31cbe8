"""The routed layers as building blocks: free sizes, optional masks, errors in words."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from textcapsules.model.layers import (
    AttentionLayer,
    CapsuleDropout,
    CapsuleLayer,
    ConvCapsules,
    JointNgrams,
    NgramConv,
    PrimaryCapsules,
)
from textcapsules.model.routing import RoutingOptions, route

NORMALISED = RoutingOptions(normalise="total")


def first_true(lengths: list[int], n: int) -> Tensor:
    return torch.arange(n) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("n_in", [None, 6])
@pytest.mark.parametrize("options", [RoutingOptions(iterations=2), NORMALISED])
def test_capsule_layer_is_routing_with_its_weights(
    n_in: int | None, options: RoutingOptions
) -> None:
    layer = CapsuleLayer(5, 3, 4, n_in=n_in, options=options).double()
    assert layer.bias is not None
    nn.init.normal_(layer.bias)
    capsules, mask = torch.randn(2, 6, 5).double(), first_true([6, 4], 6)
    routed = layer(capsules, mask)
    gain = None if layer.log_gain is None else torch.tensor(20.0).double()
    expected = route(
        capsules, layer.transform, layer.bias, mask, options, gain=gain, backend="votes"
    )
    assert routed.poses.shape == (2, 4, 3)
    for got, want in zip(routed, expected, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", [CapsuleLayer, AttentionLayer])
def test_capsules_by_position_are_the_same_children_in_a_row(kind: type) -> None:
    layer = kind(5, 3, 4).double()
    capsules, mask = torch.randn(2, 3, 2, 5).double(), first_true([3, 1], 3)
    routed = layer(capsules, mask)
    in_a_row = layer(capsules.flatten(1, 2), mask.repeat_interleave(2, 1))
    for got, want in zip(routed, in_a_row, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", [CapsuleLayer, AttentionLayer, ConvCapsules])
def test_without_a_mask_every_child_votes(kind: type) -> None:
    layer, capsules = kind(5, 3, 4), torch.randn(2, 6, 5)
    everyone = torch.ones(2, 6, dtype=torch.bool)
    got, want = layer(capsules), layer(capsules, everyone)
    if kind is ConvCapsules:
        (got, inside), (want, _) = got, want
        assert inside.all() and inside.shape == (2, 4)
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


def test_children_with_transforms_of_their_own_need_their_number() -> None:
    layer = CapsuleLayer(5, 3, 4, n_in=6)
    assert layer.transform.shape == (6, 4, 5, 3)
    assert layer(torch.randn(1, 4, 5)).poses.shape == (1, 4, 3)  # a shorter text
    with pytest.raises(ValueError, match="capsules must be at most n_in, 6; got 7"):
        layer(torch.randn(1, 7, 5))
    windows = ConvCapsules(5, 3, 4, window=2, in_types=3)
    assert windows.transform.shape == (6, 4, 5, 3)


def test_gradients_reach_an_encoder_through_all_layers() -> None:
    states = torch.randn(2, 7, 10, requires_grad=True)
    capsules = PrimaryCapsules(10, 8, 3)(states)
    routed, inside = ConvCapsules(8, 6, 5)(capsules, first_true([7, 5], 7))
    classes = CapsuleLayer(6, 4, 2)(routed.poses, inside)
    classes.lengths.sum().backward()
    assert states.grad is not None
    assert states.grad[0].abs().sum(1).all()
    assert not states.grad[1, 5:].any()  # padding has no voice


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        (CapsuleLayer, (0, 3, 4), "in_size must be .* at least 1; got 0"),
        (CapsuleLayer, (5, 3, True), "n_out must be .*; got True"),
        (AttentionLayer, (5, 2.0, 4), r"out_size must be .*; got 2\.0"),
        (PrimaryCapsules, (5, 3, -1), "n_out must be .*; got -1"),
        (CapsuleDropout, (1.5,), r"share must be from 0 to 1; got 1\.5"),
        (CapsuleDropout, (math.nan,), "share must be from 0 to 1; got nan"),
        (NgramConv, (5, 3, 0), "ngram_size must be .*; got 0"),
        (JointNgrams, (5, 3, ()), "ngram_sizes must be one size or more"),
    ],
)
def test_bad_sizes_are_refused(kind: type, sizes: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(*sizes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_types": 0}, "in_types must be a whole number of at least 1; got 0"),
        ({"window": 0}, "window must be a whole number of at least 1; got 0"),
        ({"routing_gain": 0.0}, r"routing_gain must be above 0; got 0\.0"),
        ({"options": RoutingOptions(0)}, "iterations must be at least 1; got 0"),
        (
            {"options": RoutingOptions(normalise="foo")},
            "normalise must be none or total; got 'foo'",
        ),
        ({"options": RoutingOptions(squash="foo")}, "squash must be .*; got 'foo'"),
        ({"initialiser": "he"}, "initialiser must be xavier or tensorflow; got 'he'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConvCapsules(5, 3, 4, **options)


@pytest.mark.parametrize("kind", [CapsuleLayer, AttentionLayer, ConvCapsules])
def test_inputs_that_do_not_fit_are_refused(kind: type) -> None:
    layer = kind(5, 3, 4)
    with pytest.raises(ValueError, match=r"capsules must be of shape \(B, I, 5\) or"):
        layer(torch.randn(2, 6, 4))
    with pytest.raises(ValueError, match=r"mask must be of shape \(2, 6\)"):
        layer(torch.randn(2, 6, 5), torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"mask must be .* torch\.bool; got .*float32"):
        layer(torch.randn(2, 6, 5), torch.ones(2, 6))


def test_texts_shorter_than_a_window_are_refused() -> None:
    for ngrams in (NgramConv(5, 2, 3), JointNgrams(5, 2, (1, 3))):
        with pytest.raises(ValueError, match="with T of at least 3, one n-gram; got"):
            ngrams(torch.randn(2, 2, 5))
    with pytest.raises(ValueError, match="at least 3 positions, one window; got 2"):
        ConvCapsules(5, 3, 4)(torch.randn(2, 2, 5))


def test_layers_say_their_sizes() -> None:
    assert repr(CapsuleLayer(5, 3, 4)) == "CapsuleLayer(in_size=5, out_size=3, n_out=4)"
    assert "n_in=6" in repr(CapsuleLayer(5, 3, 4, n_in=6))
