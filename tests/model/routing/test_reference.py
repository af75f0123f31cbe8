"""Reference routing against a scalar loop from the paper, and its identities."""

import itertools
import math

import numpy as np
import pytest
import torch

from textcapsules.model.routing import RoutingOptions, route

FORMULAS = {
    "norm": lambda x: x / (1 + x),
    "sabour": lambda x: x**2 / (1 + x**2),
    "released": lambda x: x**2 / (0.5 + x**2),
    "exp": lambda x: 1 - math.exp(-x),
    "tanh": math.tanh,
    "none": lambda x: x,
}
GAIN = 2.5  # of normalised weights


def scalar_routing(u, W, beta, mask, options, gain):
    """Algorithm 1 for one text, one number at a time, in float64."""
    I, D = u.shape  # noqa: E741
    J, H = W.shape[-3], W.shape[-1]
    vote = np.zeros((I, J, H))
    for i, j, h in np.ndindex(I, J, H):
        matrix = W[i, j] if W.ndim == 4 else W[j]
        vote[i, j, h] = sum(matrix[d, h] * u[i, d] for d in range(D))
        if beta is not None:
            vote[i, j, h] += beta[i, j, h] if beta.ndim == 3 else beta[j, h]
    weight = [0.0] * I
    for i in range(I):
        if mask[i]:
            norm = math.sqrt(sum(x * x for x in u[i]))
            weight[i] = norm if options.amendment else 1.0
    if options.normalise == "total" and sum(weight) > 0:
        weight = [gain * a / sum(weight) for a in weight]
    b, c, v = np.zeros((I, J)), np.zeros((I, J)), np.zeros((J, H))
    for _ in range(options.iterations):
        c = np.zeros((I, J))
        for i in range(I):
            leak = 1.0 if options.leaky else 0.0
            total = sum(math.exp(x) for x in b[i]) + leak
            for j in range(J):
                # Parents that do not compete: the others as they were at first.
                alone = math.exp(b[i, j]) + J - 1 + leak
                share = math.exp(b[i, j]) / (total if options.compete else alone)
                c[i, j] = weight[i] * share
        v = np.zeros((J, H))
        for j in range(J):
            s = [sum(c[i, j] * vote[i, j, h] for i in range(I)) for h in range(H)]
            norm = math.sqrt(sum(x * x for x in s))
            for h in range(H):
                v[j, h] = FORMULAS[options.squash](norm) * s[h] / norm if norm else 0
        for i, j in np.ndindex(I, J):
            b[i, j] += sum(vote[i, j, h] * v[j, h] for h in range(H))
    return v, np.sqrt((v * v).sum(1)), c


def problem(B=2, I=5, J=3, D=4, H=4, *, shared=True, bias=True, mask=True):  # noqa: E741
    # Scaled so that logits stay in exp's range even without a squash.
    lead = () if shared else (I,)
    return (
        0.5 * torch.randn(B, I, D, dtype=torch.float64),
        0.5 * torch.randn(*lead, J, D, H, dtype=torch.float64),
        0.3 * torch.randn(*lead, J, H, dtype=torch.float64) if bias else None,
        torch.rand(B, I) > 0.3 if mask else None,
    )


ALL_OPTIONS = [
    RoutingOptions(iterations, leaky, amendment, squash, normalise)
    for iterations, leaky, amendment, squash, normalise in itertools.product(
        (1, 2, 3, 5), (True, False), (True, False), FORMULAS, ("none", "total")
    )
] + [
    RoutingOptions(iterations, leaky, normalise=normalise, compete=False)
    for iterations, leaky, normalise in itertools.product(
        (1, 3), (True, False), ("none", "total")
    )
]


def some_gain(options: RoutingOptions) -> torch.Tensor | None:
    """Return what normalised weights sum to, or None where nothing is normalised."""
    if options.normalise == "none":
        return None
    return torch.tensor(GAIN, dtype=torch.float64, requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_votes_agree_with_the_scalar_loop(options: RoutingOptions) -> None:
    for shared, bias, mask in itertools.product((True, False), repeat=3):
        inputs = problem(shared=shared, bias=bias, mask=mask)
        with torch.no_grad():
            routed = route(*inputs, options, gain=some_gain(options), backend="votes")
        u, W, beta, m = (None if t is None else t.numpy() for t in inputs)
        for row in range(2):
            seen = np.ones(5, dtype=bool) if m is None else m[row]
            expected = scalar_routing(u[row], W, beta, seen, options, GAIN)  # type: ignore[index]
            for name, got, want in zip(routed._fields, routed, expected, strict=True):
                np.testing.assert_allclose(
                    got[row].numpy(), want, rtol=1e-12, atol=1e-12, err_msg=name
                )


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_vote_free_agrees_with_votes_outputs_and_gradients(
    options: RoutingOptions,
) -> None:
    children, transform, bias, mask = problem(3, 7, 4, 5, 6)
    assert bias is not None
    results = {}
    for backend in ("votes", "vote-free"):
        inputs = [t.clone().requires_grad_() for t in (children, transform, bias)]
        u, W, beta = inputs
        gain = some_gain(options)
        routed = route(u, W, beta, mask, options, gain=gain, backend=backend)
        inputs += [] if gain is None else [gain]
        weighted = sum(
            (o * torch.arange(1, o.numel() + 1).view_as(o)).sum() for o in routed
        )
        gradients = torch.autograd.grad(weighted, inputs)  # type: ignore[arg-type]
        results[backend] = (*routed, *gradients)
    names = ["poses", "lengths", "couplings", "children", "transform", "bias"]
    names += ["gain"] if options.normalise == "total" else []
    for name, one, other in zip(
        names, results["votes"], results["vote-free"], strict=True
    ):
        # Relative to the largest entry: both sum the same terms in another order.
        error = (one - other).abs().max() / one.abs().max()
        assert error < 1e-12, name


@pytest.mark.slow
@pytest.mark.parametrize("normalise", ["none", "total"])
@pytest.mark.parametrize("backend", ["votes", "vote-free"])
@pytest.mark.parametrize("squash", FORMULAS)
def test_gradcheck(backend: str, squash: str, normalise: str) -> None:
    children, transform, bias, mask = problem(2, 3, 2, 3, 3)
    inputs = [t.requires_grad_() for t in (children, transform, bias)]  # type: ignore[union-attr]
    options = RoutingOptions(3, True, True, squash, normalise)
    gain = some_gain(options)
    inputs += [] if gain is None else [gain]

    def routed(u, W, beta, gain=None):
        return tuple(route(u, W, beta, mask, options, gain=gain, backend=backend))

    assert torch.autograd.gradcheck(routed, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("backend", ["votes", "vote-free"])
def test_any_float_type(backend: str, dtype: torch.dtype) -> None:
    inputs = problem()
    exact = route(*inputs, backend="votes")
    cast = [
        t.to(dtype) if t is not None and t.is_floating_point() else t for t in inputs
    ]
    routed = route(*cast, backend=backend)  # type: ignore[arg-type]
    assert routed.poses.dtype == dtype
    # Eight roundings' worth of the type: three iterations of short sums.
    budget = 8 * torch.finfo(dtype).eps * 10
    assert (routed.poses.double() - exact.poses).abs().max() < budget


@pytest.mark.parametrize("backend", ["votes", "vote-free"])
def test_masked_children_do_not_vote(backend: str) -> None:
    children, transform, bias, _ = problem(2, 6, mask=False)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[:, 4:] = False
    masked = route(children, transform, bias, mask, backend=backend)
    fewer = route(children[:, :4], transform, bias, backend=backend)
    torch.testing.assert_close(masked.poses, fewer.poses)
    torch.testing.assert_close(masked.couplings[:, :4], fewer.couplings)
    assert (masked.couplings[:, 4:] == 0).all()


@pytest.mark.parametrize("normalise", ["none", "total"])
@pytest.mark.parametrize("backend", ["votes", "vote-free"])
@pytest.mark.parametrize("squash", ["norm", "none"])
def test_nobody_voting_gives_zero_and_finite_gradients(
    squash: str, backend: str, normalise: str
) -> None:
    children, transform, bias, _ = problem()
    children.requires_grad_()
    nobody = torch.zeros(2, 5, dtype=torch.bool)
    options = RoutingOptions(squash=squash, normalise=normalise)
    gain = some_gain(options)
    routed = route(
        children, transform, bias, nobody, options, gain=gain, backend=backend
    )
    assert (routed.lengths == 0).all()
    inputs = [children, *([] if gain is None else [gain])]
    loss = routed.poses.sum() + routed.couplings.sum()
    for gradient in torch.autograd.grad(loss, inputs):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("amendment", [True, False])
def test_repeating_a_text_changes_poses_unless_normalised(amendment: bool) -> None:
    children, transform, bias, mask = problem()
    assert mask is not None
    thrice = (children.repeat(1, 3, 1), transform, bias, mask.repeat(1, 3))
    for normalise, same in (("total", True), ("none", False)):
        options = RoutingOptions(amendment=amendment, normalise=normalise)
        one = route(children, transform, bias, mask, options).poses
        many = route(*thrice, options).poses
        assert torch.allclose(one, many, rtol=1e-12, atol=1e-12) == same


def test_permuting_children_permutes_couplings() -> None:
    children, transform, bias, mask = problem()
    assert mask is not None
    order = torch.randperm(5)
    one = route(children, transform, bias, mask)
    other = route(children[:, order], transform, bias, mask[:, order])
    torch.testing.assert_close(one.couplings[:, order], other.couplings)
    torch.testing.assert_close(one.poses, other.poses)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"children": torch.ones(2, 3)}, r"children must be \(B, I, D\); got \(2, 3\)"),
        (
            {"transform": torch.ones(4, 3, 4, 4)},
            r"transform must be .*; got \(4, 3, 4, 4\)",
        ),
        ({"transform": torch.ones(3, 9, 4)}, r"poses of size 4; got \(3, 9, 4\)"),
        ({"bias": torch.ones(2, 4)}, r"bias must be \(3, 4\) .*; got \(2, 4\)"),
        ({"mask": torch.ones(2, 9)}, r"mask must be \(2, 5\); got \(2, 9\)"),
        ({"options": RoutingOptions(0)}, "iterations must be at least 1; got 0"),
        ({"backend": "cuda"}, "backend must be one of .*; got 'cuda'"),
        (
            {"backend": "vote-free", "transform": torch.ones(5, 3, 4, 4), "bias": None},
            r"transform must be shared.*; got shape \(5, 3, 4, 4\)",
        ),
    ],
)
def test_route_names_what_is_wrong(change: dict, message: str) -> None:
    children, transform, bias, mask = problem()
    inputs = {"children": children, "transform": transform, "bias": bias, "mask": mask}
    with pytest.raises(ValueError, match=message):
        route(**{**inputs, **change})
