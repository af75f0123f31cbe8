"""Squash and softmax against formulas written out by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textcapsules.model.functional import (
    SQUASHES,
    coupling_softmax,
    leaky_softmax,
    pose_length,
    squash,
)

FORMULAS = {  # f(x), straight from table A.4, Sabour et al. and the released code
    "norm": lambda x: x / (1 + x),
    "sabour": lambda x: x**2 / (1 + x**2),
    "released": lambda x: x**2 / (0.5 + x**2),
    "exp": lambda x: -math.expm1(-x),
    "tanh": math.tanh,
    "none": lambda x: x,
}
KINDS = list(FORMULAS)
poses = st.lists(st.floats(-50, 50), min_size=1, max_size=6)


def test_every_squash_has_a_formula() -> None:
    assert set(SQUASHES) | {"none"} == set(FORMULAS)


@pytest.mark.parametrize("kind", KINDS)
@given(values=poses)
@settings(max_examples=40, deadline=None)
def test_squash_keeps_direction_and_maps_the_norm(kind: str, values: list) -> None:
    pose = torch.tensor(values, dtype=torch.float64)
    norm = math.hypot(*values)  # which does not underflow
    squashed = squash(pose, kind).numpy()
    expected = np.array(values) * (FORMULAS[kind](norm) / norm if norm else 0)
    np.testing.assert_allclose(squashed, expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-20, 1e-6, 1.0, 1e6, 1e20, 3e37])
def test_squash_is_safe_from_zero_to_huge(
    kind: str, size: float, dtype: torch.dtype
) -> None:
    pose = torch.full((3,), size, dtype=dtype, requires_grad=True)
    out = squash(pose, kind)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert pose.grad is not None
    assert torch.isfinite(pose.grad).all()
    length = float(pose_length(out.detach().double()))
    if kind != "none":
        assert length <= 1 + 4 * torch.finfo(dtype).eps
    if size >= 1e6 and kind != "none":  # saturated: a unit vector is left
        assert length == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_squash_gradients_match_finite_differences(kind: str) -> None:
    pose = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: squash(p, kind), (pose,))


def test_length_does_not_leave_the_float_range() -> None:
    huge = pose_length(torch.full((4,), 1e30))
    tiny = pose_length(torch.full((4,), 1e-30))
    assert huge == pytest.approx(2e30, rel=1e-6)
    assert tiny == pytest.approx(2e-30, rel=1e-6)


def test_squash_rejects_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match=r"squash must be one of .*; got 'relu'"):
        squash(torch.ones(3), "relu")


@given(logits=st.lists(st.floats(-700, 700), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_leaky_softmax_is_softmax_with_a_zero_logit_left_out(logits: list) -> None:
    shift = max([0.0, *logits])
    powers = [math.exp(b - shift) for b in logits]
    expected = [p / (math.exp(-shift) + sum(powers)) for p in powers]
    got = leaky_softmax(torch.tensor(logits, dtype=torch.float64))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-300)


def test_softmax_sums_to_one_and_leaky_to_less() -> None:
    logits = torch.randn(7, 4, dtype=torch.float64)
    plain = coupling_softmax(logits, leaky=False).sum(-1)
    torch.testing.assert_close(plain, torch.ones(7, dtype=torch.float64))
    assert (coupling_softmax(logits, leaky=True).sum(-1) < 1).all()
