"""Routing in windows is routing each window by itself."""

import pytest
import torch

from textcapsules.model.routing import route, route_windows


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_each_window_is_routed_by_itself(window: int, shared: bool) -> None:
    capsules = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    lead = () if shared else (window * 3,)
    transform = torch.randn(*lead, 2, 4, 4, dtype=torch.float64)
    bias = torch.randn(*lead, 2, 4, dtype=torch.float64)
    n_windows = 5 - window + 1
    mask = torch.rand(2, n_windows, window) > 0.3
    together = route_windows(capsules, transform, bias, mask)
    for row in range(2):
        for start in range(n_windows):
            # Position first, then type: the order non-shared transforms rely on.
            children = capsules[row, start : start + window].reshape(1, -1, 4)
            seen = torch.tensor(
                [[mask[row, start, k] for k in range(window) for _ in "abc"]]
            )
            alone = route(children, transform, bias, seen)
            for name, one, other in zip(alone._fields, together, alone, strict=True):
                torch.testing.assert_close(one[row, start], other[0], msg=name)


def test_a_mask_of_other_windows_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"mask must be \(2, 5 - K \+ 1, K\); got \(2, 5, 3\)"
    ):
        route_windows(
            torch.ones(2, 5, 3, 4), torch.ones(2, 4, 4), None, torch.ones(2, 5, 3) > 0
        )
