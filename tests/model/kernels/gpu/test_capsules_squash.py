"""The fused squash against the plain one, in float64, outputs and gradients."""

import pytest
import torch

from textcapsules.model.functional import SQUASHES, squash
from textcapsules.model.kernels.gpu.capsules import squash_gpu
from textcapsules.model.routing import squash_capsules
from triton_kernels import DEVICE

pytestmark = pytest.mark.slow

FLOOR = 2e-7  # two roundings of a number near 1


@pytest.mark.parametrize("kind", [*SQUASHES, "none"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 16), (65, 7), (2, 64, 33)], ids=str)
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_fused_squash_is_as_accurate_as_plain(kind, shape, scale) -> None:
    poses = (scale * torch.randn(shape)).to(DEVICE)
    poses[..., 0, :] = 0  # a pose of length zero
    slope = torch.randn(shape, device=DEVICE)
    results = {}
    for name, function, dtype in (
        ("exact", squash, torch.float64),
        ("plain", squash, torch.float32),
        ("fused", squash_gpu, torch.float32),
    ):
        x = poses.to(dtype, copy=True).requires_grad_()
        out = function(x, kind)
        out.backward(slope.to(dtype))
        assert x.grad is not None
        results[name] = out.detach().double(), x.grad.double()
    for part in (0, 1):
        exact = results["exact"][part]
        size = exact.abs().max() + 1e-300
        plain = (results["plain"][part] - exact).abs().max() / size
        fused = (results["fused"][part] - exact).abs().max() / size
        assert fused <= 2 * plain + FLOOR


def test_plain_code_serves_what_has_no_kernel() -> None:
    poses = torch.randn(4, 3)
    torch.testing.assert_close(squash_capsules(poses, "norm"), squash(poses))
    assert squash_capsules(poses.double(), "norm").dtype == torch.float64
    assert squash_capsules(poses[:0], "norm").shape == (0, 3)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_gpu_takes_the_kernel(monkeypatch) -> None:
    called = []
    monkeypatch.setattr(
        "textcapsules.model.kernels.gpu.capsules.squash_gpu",
        lambda *inputs: called.append(inputs),
    )
    squash_capsules(torch.ones(2, 3, device="cuda"), "norm")
    assert called
