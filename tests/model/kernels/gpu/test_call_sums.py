"""The sums over the rows of matrices, against torch in float64."""

import pytest
import torch

from textcapsules.model.kernels.gpu.call import sum_rows
from triton_kernels import DEVICE


@pytest.mark.parametrize(
    ("shape", "more", "turned"),
    [
        ((1, 1), (0, 0), (0, 1, 1)),
        ((1, 1), (1, 1), (1, 1, 1)),
        ((130, 70), (0, 0), (0, 1, 1)),
        ((3, 100), (65, 7), (5, 3, 4)),
        ((25, 64), (129, 65), (2, 4, 8)),
    ],
    ids=str,
)
def test_rows_of_one_or_two_matrices_are_added_up(shape, more, turned) -> None:
    first = torch.randn(shape, device=DEVICE)
    second = torch.randn(more, device=DEVICE)
    parts = torch.cat([first.flatten(), second.flatten()])
    result = sum_rows(parts, shape, more, turned)
    total, (V, K, F) = first.double().sum(0), turned
    filters = total[: V * K * F].view(V, K, F).permute(2, 0, 1).flatten()
    expected = torch.cat([filters, total[V * K * F :], second.double().sum(0)])
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-5)
    assert torch.equal(result, sum_rows(parts, shape, more, turned))
