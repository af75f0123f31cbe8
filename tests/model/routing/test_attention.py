"""Attention routing against a scalar loop, its gradients, and what it promises."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from textcapsules.model.layers import AttentionLayer
from textcapsules.model.routing import attend

B, I, J, H = 2, 6, 3, 4  # noqa: E741


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    keys, values = (torch.randn(B, I, H, dtype=torch.float64) for _ in range(2))
    queries = torch.randn(J, H, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]]).bool()
    return keys, values, queries, mask


def layer_norm() -> nn.LayerNorm:
    norm = nn.LayerNorm(H, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def scalar_norm(x, norm):
    mean = sum(x) / len(x)
    variance = sum((e - mean) ** 2 for e in x) / len(x)
    scale, shift = norm.weight.tolist(), norm.bias.tolist()
    return [
        s * (e - mean) / math.sqrt(variance + norm.eps) + t
        for e, s, t in zip(x, scale, shift, strict=True)
    ]


def scalar_attention(k, x, q, mask, norm, iterations, leaky, compete):
    """One text, one number at a time."""
    z, mass, c = [[0.0] * H for _ in range(J)], [0.0] * J, np.zeros((I, J))
    asked = [scalar_norm(list(q[j]), norm) for j in range(J)]
    for _ in range(iterations):
        c = np.zeros((I, J))
        for i in range(I):
            if not mask[i]:
                continue
            b = [sum(k[i][h] * asked[j][h] for h in range(H)) / 2 for j in range(J)]
            total = sum(math.exp(e) for e in b) + leaky
            for j in range(J):
                # Parents that do not compete: the others as though their logits were 0.
                alone = math.exp(b[j]) + J - 1 + leaky
                c[i, j] = math.exp(b[j]) / (total if compete else alone)
        mass = [sum(c[i, j] for i in range(I)) for j in range(J)]
        z = [
            [
                sum(c[i, j] * x[i][h] for i in range(I)) / (mass[j] + 1e-4)
                for h in range(H)
            ]
            for j in range(J)
        ]
        asked = [
            scalar_norm([q[j][h] + z[j][h] for h in range(H)], norm) for j in range(J)
        ]
    return np.array(z), np.array(mass), c


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
@pytest.mark.parametrize("leaky", [True, False])
@pytest.mark.parametrize("compete", [True, False])
def test_agrees_with_the_scalar_loop(
    iterations: int, leaky: bool, compete: bool
) -> None:
    keys, values, queries, mask = problem()
    norm = layer_norm()
    with torch.no_grad():
        attended = attend(
            keys,
            values,
            queries,
            mask,
            norm,
            iterations=iterations,
            leaky=leaky,
            compete=compete,
        )
    for row in range(B):
        expected = scalar_attention(
            keys[row].tolist(),
            values[row].tolist(),
            queries.tolist(),
            mask[row].tolist(),
            norm,
            iterations,
            leaky,
            compete,
        )
        for name, got, want in zip(attended._fields, attended, expected, strict=True):
            np.testing.assert_allclose(
                got[row].numpy(), want, rtol=1e-11, atol=1e-12, err_msg=name
            )


def test_gradcheck() -> None:
    keys, values, queries, mask = problem()
    norm = layer_norm()
    inputs = [t.requires_grad_() for t in (keys, values, queries)]

    def attended(k, x, q):
        return tuple(attend(k, x, q, mask, norm))

    assert torch.autograd.gradcheck(attended, inputs)


def test_couplings_of_a_child_sum_to_one_unless_it_may_leak() -> None:
    keys, values, queries, mask = problem()
    for leaky in (True, False):
        sums = attend(keys, values, queries, mask, layer_norm(), leaky=leaky)[2].sum(2)
        assert not sums[~mask].any()
        assert (
            (sums[mask] < 1).all()
            if leaky
            else torch.allclose(sums[mask], torch.ones_like(sums[mask]))
        )


def test_a_text_said_twice_has_the_same_poses() -> None:
    """A pose is a mean: only the mass tells how long a text is."""
    keys, values, queries, mask = problem()
    norm = layer_norm()
    once = attend(keys, values, queries, mask, norm)
    twice = attend(
        torch.cat([keys] * 2, 1),
        torch.cat([values] * 2, 1),
        queries,
        torch.cat([mask] * 2, 1),
        norm,
    )
    torch.testing.assert_close(twice.mass, 2 * once.mass, rtol=1e-3, atol=0)
    torch.testing.assert_close(twice.poses, once.poses, rtol=1e-3, atol=1e-3)


def test_no_iteration_is_refused() -> None:
    with pytest.raises(ValueError, match="iterations must be at least 1; got 0"):
        attend(*problem(), layer_norm(), iterations=0)


def class_layer(*, orphan: bool = True) -> AttentionLayer:
    return AttentionLayer(5, H, J, orphan=orphan).double()


@pytest.mark.parametrize("orphan", [True, False])
def test_classes_have_logits_and_a_text_without_words_has_no_class(
    orphan: bool,
) -> None:
    layer = class_layer(orphan=orphan)
    capsules = torch.randn(3, 4, 2, 5, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]).bool()
    attended = layer(capsules, mask)
    assert attended.logits.shape == (3, J)
    assert attended.lengths.shape == attended.poses.shape[:2] == (3, J + orphan)
    torch.testing.assert_close(attended.lengths[:2, :J], attended.logits[:2].sigmoid())
    assert not attended.lengths[2].any() and not attended.couplings[2].any()
    short = layer(capsules[1:2, :2], mask[1:2, :2])  # without its padding
    torch.testing.assert_close(short.logits, attended.logits[1:2])
    # w · LN(z) + b + α log m, by hand for one class.
    z = attended.poses[0, 1]
    normal = (z - z.mean()) / (z.var(unbiased=False) + layer.norm.eps).sqrt()
    mass = attended.couplings[0, :, 1].sum()
    expected = layer.weight[1] @ normal + layer.bias[1] + 0.5 * torch.log(mass + 1e-3)
    torch.testing.assert_close(attended.logits[0, 1], expected)
