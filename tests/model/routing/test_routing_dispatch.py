"""The dispatcher: every branch is reached, and every fallback is logged."""

import logging
import math
from types import SimpleNamespace

import pytest
import torch

from textcapsules.model import routing
from textcapsules.model.functional import squash
from textcapsules.model.routing import (
    Routed,
    RoutingOptions,
    pick_backend,
    route_windows,
)

OPTIONS = RoutingOptions()


def tensors(*, shared: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    lead = () if shared else (6,)
    return torch.ones(2, 4, 3, 4), torch.ones(*lead, 2, 4, 4)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, SimpleNamespace]:
    """Stand-ins for the kernels' modules, which note that they were called."""
    made = {}
    for name in ("cpu", "gpu"):
        module = SimpleNamespace(reason=None, calls=[])
        module.supports = lambda *_, module=module: module.reason

        def run(*inputs, module=module, couplings, **_):
            module.calls.append(couplings)
            empty = torch.empty(0)
            return Routed(empty, empty, None)  # type: ignore[arg-type]

        setattr(module, f"route_windows_{name}", run)
        made[name] = module
    monkeypatch.setattr(routing, "_kernels", made.__getitem__)
    routing._log_once.cache_clear()
    return made


@pytest.fixture
def nothing_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels be chosen for what plain code would route as soon."""
    monkeypatch.setattr(routing, "FEW_COUPLINGS", 0)


def on_gpu(tensor: torch.Tensor) -> SimpleNamespace:
    """Something that says it lies on a GPU; the choice looks at nothing else."""
    device = SimpleNamespace(type="cuda")
    return SimpleNamespace(is_cuda=True, shape=tensor.shape, device=device)


def test_auto_takes_plain_code_for_little_without_a_gradient(kernels) -> None:
    capsules, transform = tensors()  # 2 x 4 x 3 children of 2 parents
    assert pick_backend("auto", capsules, transform) == "vote-free"
    assert pick_backend("cpu", capsules, transform) == "cpu"  # if it is asked for
    assert pick_backend("auto", on_gpu(capsules), transform) == "gpu"  # type: ignore[arg-type]
    few = routing.FEW_COUPLINGS // (4 * 3 * 2)
    assert pick_backend("auto", capsules.new_ones(few, 4, 3, 4), transform) != "cpu"
    more = capsules.new_ones(few + 1, 4, 3, 4)
    assert pick_backend("auto", more, transform) == "cpu"
    learnt = transform.requires_grad_()
    assert pick_backend("auto", capsules, learnt) == "cpu"
    assert pick_backend("auto", capsules, transform[:1], learnt[0]) == "cpu"
    with torch.no_grad():
        assert pick_backend("auto", capsules, learnt) == "vote-free"


def test_a_call_of_many_texts_takes_the_kernel_for_its_smallest_batch(kernels) -> None:
    capsules, transform = tensors()
    with routing.expect_texts(routing.MANY_TEXTS):
        assert pick_backend("auto", capsules, transform) == "cpu"
        with routing.expect_texts(1):
            assert pick_backend("auto", capsules, transform) == "vote-free"
        assert pick_backend("auto", capsules, transform) == "cpu"
    assert pick_backend("auto", capsules, transform) == "vote-free"


def test_auto_takes_the_kernel_of_the_device(kernels, nothing_little) -> None:
    capsules, transform = tensors()
    assert pick_backend("auto", capsules, transform) == "cpu"
    assert pick_backend("auto", on_gpu(capsules), transform) == "gpu"  # type: ignore[arg-type]


@pytest.mark.parametrize(("shared", "plain"), [(True, "vote-free"), (False, "chunked")])
def test_auto_falls_back_and_logs_it_once(
    kernels, nothing_little, caplog, shared, plain
) -> None:
    kernels["cpu"].reason = "numba is not installed"
    capsules, transform = tensors(shared=shared)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert pick_backend("auto", capsules, transform) == plain
    messages = [r.message for r in caplog.records if "falls back" in r.message]
    assert messages == [
        f"routing falls back to plain code ({plain}): numba is not installed"
    ]


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_an_asked_kernel_that_cannot_is_an_error(kernels, name) -> None:
    kernels[name].reason = "it is Sunday"
    with pytest.raises(ValueError, match=f"backend '{name}' must be able .*Sunday"):
        pick_backend(name, *tensors())


@pytest.mark.parametrize("name", ["cpu", "gpu"])
@pytest.mark.parametrize("couplings", [True, False])
def test_kernels_are_called_with_whether_couplings_are_wanted(
    kernels, name, couplings
) -> None:
    capsules, transform = tensors()
    mask = torch.ones(2, 3, 2, dtype=torch.bool)
    route_windows(capsules, transform, None, mask, couplings=couplings, backend=name)
    assert kernels[name].calls == [couplings]


def test_the_gpu_kernel_gets_the_precision(kernels, monkeypatch) -> None:
    precisions = []
    run = kernels["gpu"].route_windows_gpu
    kernels["gpu"].route_windows_gpu = lambda *inputs, precision, **rest: (
        precisions.append(precision) or run(*inputs, **rest)
    )
    capsules, transform = tensors()
    mask = torch.ones(2, 3, 2, dtype=torch.bool)
    route_windows(capsules, transform, None, mask, backend="gpu", precision="tf32")
    assert precisions == ["tf32"]


@pytest.mark.parametrize("backend", ["votes", "vote-free", "chunked"])
def test_plain_code_is_called_by_name(kernels, monkeypatch, backend) -> None:
    called = []
    for name, function in (
        ("votes", "route_with_votes"),
        ("vote-free", "route_without_votes"),
        ("chunked", "route_in_chunks"),
    ):
        honest = getattr(routing, function)

        def spy(*inputs, name=name, honest=honest):
            called.append(name)
            return honest(*inputs)

        monkeypatch.setattr(routing, function, spy)
    capsules, transform = tensors()
    mask = torch.ones(2, 3, 2, dtype=torch.bool)
    route_windows(capsules, transform, None, mask, backend=backend)
    assert called == [backend]
    assert not kernels["cpu"].calls


@pytest.mark.parametrize(
    ("normalise", "gain", "message"),
    [
        ("none", torch.tensor(2.0), "gain must be None where nothing is normalised"),
        ("total", torch.ones(2), r"gain must be one number; got shape \(2,\)"),
        ("mean", None, "normalise must be none or total; got 'mean'"),
    ],
)
def test_what_cannot_be_normalised_is_refused(
    kernels, normalise, gain, message
) -> None:
    mask = torch.ones(2, 3, 2, dtype=torch.bool)
    options = RoutingOptions(normalise=normalise)
    with pytest.raises(ValueError, match=message):
        route_windows(*tensors(), None, mask, options, gain=gain)
    assert not kernels["cpu"].calls


@pytest.mark.parametrize("backend", [*routing.BACKENDS, "auto"])
def test_every_backend_is_given_the_gain(kernels, monkeypatch, backend) -> None:
    given = []

    def spy(*inputs, **_):
        given.append(inputs[5])
        empty = torch.empty(2, 0)
        return Routed(empty, empty, empty)

    for name in ("route_with_votes", "route_without_votes", "route_in_chunks"):
        monkeypatch.setattr(routing, name, spy)
    for name, module in kernels.items():
        monkeypatch.setattr(module, f"route_windows_{name}", spy)
    gain, mask = torch.tensor(3.0), torch.ones(2, 1, 4, dtype=torch.bool)
    options = RoutingOptions(normalise="total")
    route_windows(*tensors(), None, mask, options, gain=gain, backend=backend)
    assert given == [gain]


def test_real_modules_are_behind_the_names() -> None:
    for name in ("cpu", "gpu"):
        module = routing._kernels(name)
        assert callable(getattr(module, f"route_windows_{name}"))
        assert module.supports(*tensors(shared=False), None, OPTIONS)  # a reason


@pytest.mark.parametrize(("name", "package"), [("cpu", "numba"), ("gpu", "triton")])
def test_a_kernel_asked_to_route_without_competition_is_refused(
    monkeypatch, name, package
) -> None:
    pytest.importorskip(package)
    module = routing._kernels(name)
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # which takes tensors of the CPU
    assert module.supports(*tensors(), None, OPTIONS) is None
    message = f"backend '{name}' must be able .*; the parents do not compete"
    with pytest.raises(ValueError, match=message):
        pick_backend(name, *tensors(), None, RoutingOptions(compete=False))


def test_routing_without_competition_falls_back_to_plain_code(
    nothing_little, caplog
) -> None:
    pytest.importorskip("numba")
    routing._log_once.cache_clear()
    capsules, transform = torch.randn(2, 4, 3, 4), torch.randn(2, 4, 4)
    options, mask = RoutingOptions(compete=False), torch.ones(2, 3, 2).bool()
    assert pick_backend("auto", capsules, transform) == "cpu"
    with caplog.at_level(logging.INFO):
        routed = route_windows(capsules, transform, None, mask, options)
    assert [r.message for r in caplog.records if "falls back" in r.message] == [
        "routing falls back to plain code (vote-free): the parents do not compete"
    ]
    plain = route_windows(capsules, transform, None, mask, options, backend="votes")
    torch.testing.assert_close(routed, plain)


@pytest.mark.parametrize("kind", ["norm", "sabour", "released", "exp", "tanh", "none"])
@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-20, 1e-6, 1.0, 1e6, 1e20, 3e37])
def test_poses_on_a_cpu_are_squashed_as_defined(kind: str, size: float) -> None:
    torch.manual_seed(0)
    poses = size * torch.randn(5, 4, 16)
    poses[0] = torch.randn(4, 16)
    poses[1, 2] = 0
    weights, results = torch.randn(5, 4, 16), []
    for function in (squash, routing.squash_capsules):
        leaf = poses.clone().requires_grad_()
        squashed = function(leaf, kind)
        (squashed * weights).sum().backward()
        results.append((squashed.detach(), leaf.grad))
    (expected, slope), (squashed, fast_slope) = results
    torch.testing.assert_close(squashed, expected, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(fast_slope, slope, rtol=1e-4, atol=1e-6)


def test_a_pose_that_is_no_number_stays_alone() -> None:
    poses = torch.ones(3, 4)
    poses[1, 0] = math.nan
    squashed = routing.squash_capsules(poses, "norm")
    assert squashed[1].isnan().any() and squashed[[0, 2]].isfinite().all()
