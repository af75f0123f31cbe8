"""The fused n-gram features and capsules against convolution, linear map and squash."""

import pytest
import torch
from torch.nn import functional as F

from textcapsules.model import functional
from textcapsules.model.kernels.gpu.capsules import primary_capsules_gpu
from triton_kernels import DEVICE

pytestmark = pytest.mark.slow

NAMES = ("capsules", "vectors", "filters", "filter bias", "weight", "bias")
# Added to twice the plain code's error, as a share of the largest entry: the order of
# the sums differs, and in some draws the plain one is lucky.
FLOOR = 1e-6


@pytest.fixture(autouse=True)
def _poison_fresh_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what the kernels allocate with NaN: nothing unwritten may be read."""
    allocate = torch.Tensor.new_empty

    def poisoned(tensor, *size, **how):
        return allocate(tensor, *size, **how).fill_(float("nan"))

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)


def plain(vectors, filters, filter_bias, weight, bias, *, shape, stride, squash: str):
    features = F.relu(F.conv1d(vectors.mT, filters, filter_bias, stride)).mT
    poses = F.linear(features, weight, bias).unflatten(-1, shape)
    return functional.squash(poses, squash)


def outcome(function, inputs, slope, dtype, **options):
    leaves = [t.to(dtype, copy=True).requires_grad_() for t in inputs]
    out = function(*leaves, **options)
    results = (out, *torch.autograd.grad(out, leaves, slope.to(dtype)))
    return [t.detach().double() for t in results]


@pytest.mark.parametrize(
    ("B", "T", "V", "K", "filters", "shape", "stride", "kind"),
    [
        (1, 1, 1, 1, 1, (1, 1), 1, "norm"),
        (2, 9, 7, 3, 5, (3, 4), 1, "norm"),
        (3, 12, 10, 5, 32, (8, 16), 1, "norm"),
        (2, 13, 6, 4, 17, (5, 8), 2, "released"),
        (1, 7, 5, 2, 33, (2, 32), 3, "tanh"),
        (2, 8, 4, 3, 16, (3, 12), 1, "exp"),
        (1, 6, 4, 6, 8, (4, 16), 1, "sabour"),
        (1, 6, 4, 3, 8, (4, 16), 1, "none"),
    ],
    ids=str,
)
def test_fused_capsules_are_as_accurate_as_plain(
    B, T, V, K, filters, shape, stride, kind
) -> None:
    n_numbers = shape[0] * shape[1]
    sizes = ((B, T, V), (filters, V, K), (filters,), (n_numbers, filters), (n_numbers,))
    inputs = [torch.randn(size, device=DEVICE) for size in sizes]
    slope = torch.randn(B, (T - K) // stride + 1, *shape, device=DEVICE)
    options = {"shape": shape, "stride": stride, "squash": kind}
    exact = outcome(plain, inputs, slope, torch.float64, **options)
    usual = outcome(plain, inputs, slope, torch.float32, **options)
    fused = outcome(primary_capsules_gpu, inputs, slope, torch.float32, **options)
    for name, truth, other, result in zip(NAMES, exact, usual, fused, strict=True):
        assert torch.isfinite(result).all(), name
        allowed = 2 * (other - truth).abs().max() + FLOOR * truth.abs().max()
        error = (result - truth).abs().max()
        assert error <= allowed, f"{name}: {error:.2e} > {allowed:.2e}"


def test_a_bias_below_zero_stops_every_gradient() -> None:
    """ReLU is zero for all n-grams: only the linear map's bias still learns."""
    inputs = [
        torch.randn(2, 5, 4, device=DEVICE),
        torch.randn(3, 4, 2, device=DEVICE),
        torch.full((3,), -100.0, device=DEVICE),
        torch.randn(8, 3, device=DEVICE),
        torch.randn(8, device=DEVICE),
    ]
    slope = torch.randn(2, 4, 2, 4, device=DEVICE)
    options = {"shape": (2, 4), "stride": 1, "squash": "norm"}
    _, *rest, bias = outcome(
        primary_capsules_gpu, inputs, slope, torch.float32, **options
    )
    assert all(not gradient.any() for gradient in rest)
    assert bias.abs().max() > 0
