"""The fused margin loss against the plain one in float64, loss and gradient."""

import pytest
import torch

from textcapsules.model.kernels.gpu.losses import margin_loss_gpu
from textcapsules.training.losses import margin_loss
from triton_kernels import DEVICE

pytestmark = pytest.mark.slow

MARGINS = {"m_plus": 0.8, "m_minus": 0.15, "down_weight": 0.4}


@pytest.mark.parametrize(
    "shape", [(1, 1), (7, 3), (25, 9), (2, 1025), (9, 600), (1, 5000)], ids=str
)
@pytest.mark.parametrize("sliced", [False, True], ids=["whole", "sliced"])
def test_fused_loss_is_as_accurate_as_plain(shape, sliced) -> None:
    B, E = shape
    wide = torch.rand(B, E + 1, device=DEVICE) if sliced else torch.rand(shape)
    lengths = wide[:, :E].to(DEVICE)  # the orphan's column left out
    targets = (torch.rand(shape, device=DEVICE) < 0.4).float()
    results = {}
    for name, function, dtype in (
        ("exact", margin_loss, torch.float64),
        ("plain", margin_loss, torch.float32),
        ("fused", margin_loss_gpu, torch.float32),
    ):
        x = lengths.to(dtype).detach().requires_grad_()
        loss = function(x, targets.to(dtype), **MARGINS)
        (3 * loss).backward()
        assert x.grad is not None
        results[name] = (loss.detach().double(), x.grad.double())
    for part in (0, 1):
        exact = results["exact"][part]
        plain = (results["plain"][part] - exact).abs().max()
        fused = (results["fused"][part] - exact).abs().max()
        assert fused <= 2 * plain + 2e-7 * exact.abs().max()
