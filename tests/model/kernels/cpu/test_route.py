"""The CPU kernels against the reference: outputs and every gradient, by name.

Truth is the reference in float64 on the same rounded inputs. A kernel may be off by
twice what the reference is off in the kernel's own type, plus a floor for the problems
where the reference happens to be lucky; the GPU's kernels have the same.
"""

import itertools
import os
import subprocess
import sys
import threading
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from textcapsules.config import preset
from textcapsules.model.builder import build_network
from textcapsules.model.layers import RoutedLayer
from textcapsules.model.routing import RoutingOptions, route_windows
from textcapsules.training.losses import network_loss

pytest.importorskip("numba")

from textcapsules.model.kernels.cpu import call
from textcapsules.model.kernels.cpu import route as cpu

pytestmark = pytest.mark.slow

PAPER = RoutingOptions()
NORMAL = RoutingOptions(normalise="total")
GAIN = 1.5  # of normalised weights
FLOOR = 3e-6  # of the largest entry
TINY = torch.finfo(torch.float32).tiny  # errors below it are none
NAMES = ("poses", "lengths", "couplings")
LEAVES = ("capsules", "transform", "bias", "gain")
NORMALISED = ("none", "total")
SQUASHES = ("norm", "sabour", "released", "exp", "tanh", "none")


class Problem(NamedTuple):
    capsules: Tensor
    transform: Tensor
    bias: Tensor | None
    mask: Tensor


def problem(
    B=2, P=5, C=3, D=4, K=2, J=3, H=5, *, bias=True, scale=0.5, dtype=torch.float32
) -> Problem:
    # Scaled so that logits stay in exp's range even without a squash.
    return Problem(
        scale * torch.randn(B, P, C, D, dtype=dtype),
        0.5 * torch.randn(J, D, H, dtype=dtype),
        0.3 * torch.randn(J, H, dtype=dtype) if bias else None,
        torch.rand(B, P - K + 1, K) > 0.3,
    )


def outcome(
    given: Problem, options=PAPER, *, backend="cpu", couplings=True
) -> dict[str, Tensor]:
    """Route, and go back from a fixed weighting of all outputs; everything by name."""
    gain = given.capsules.new_tensor(GAIN) if options.normalise == "total" else None
    leaves = [
        None if t is None else t.detach().requires_grad_() for t in (*given[:3], gain)
    ]
    u, W, beta, gain = leaves
    assert u is not None and W is not None
    if backend == "cpu":
        routed = cpu.route_windows_cpu(
            u, W, beta, given.mask, options, gain, couplings=couplings
        )
    else:
        routed = route_windows(
            u, W, beta, given.mask, options, gain=gain, backend=backend
        )
    outputs: list[Any] = [*routed] if couplings else [routed.poses, routed.lengths]
    weights = [
        torch.arange(1, o.numel() + 1, dtype=torch.float64).sin().view_as(o).to(o)
        for o in outputs
    ]
    pairs = zip(LEAVES, leaves, strict=True)
    present = {name: leaf for name, leaf in pairs if leaf is not None}
    total = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
    gradients = torch.autograd.grad(total, [*present.values()])  # type: ignore[arg-type]
    names = [*NAMES[: len(outputs)], *present]
    return dict(zip(names, [*outputs, *gradients], strict=True))


def in_double(given: Problem) -> Problem:
    u, W, beta, mask = given
    return Problem(
        u.double(), W.double(), None if beta is None else beta.double(), mask
    )


def slope_of_gain(given: Problem, options: RoutingOptions, couplings: bool) -> Tensor:
    """Return the norm of what all outputs change by where the gain does.

    The gradient of the gain is one number, a sum of these with signs that may cancel:
    so its error is measured against them.
    """

    step, routed = 1e-6, []
    for value in (GAIN + step, GAIN - step):
        gain = given.capsules.new_tensor(value)
        outputs = route_windows(*given, options, gain=gain, backend="vote-free")
        routed.append(torch.cat([o.flatten() for o in outputs[: 2 + couplings]]))
    return (routed[0] - routed[1]).norm() / (2 * step)


def check(*problems: Problem, options=PAPER, couplings=True, lottery=False) -> None:
    """Compare the errors of every problem, or of all together where one is a lottery.

    Eight iterations, or numbers below the smallest normal one, multiply a rounding by
    thousands, whichever code it happens to: there the errors' median must keep to the
    rule, and the largest to five times as much.
    """
    settings = {"options": options, "couplings": couplings}
    errors: dict[str, list[list[float]]] = {}
    for given in problems:
        exact = outcome(in_double(given), backend="vote-free", **settings)
        plain = outcome(given, backend="vote-free", **settings)
        fused = outcome(given, **settings)
        for name, truth in exact.items():
            assert fused[name].shape == truth.shape, name
            largest = truth.abs().max()
            if name == "gain":
                largest = slope_of_gain(in_double(given), options, couplings)
            largest = largest.clamp(min=TINY)
            pair = [(o[name] - truth).abs().max() / largest for o in (fused, plain)]
            errors.setdefault(name, []).append([error.item() for error in pair])
    for name, pairs in errors.items():
        cases = [(2, *pair) for pair in pairs]
        if lottery:
            cases = [(2, *np.median(pairs, axis=0)), (10, *np.max(pairs, axis=0))]
        for factor, error, plain_error in cases:
            allowed = factor * plain_error + FLOOR
            assert error <= allowed, f"{name}: off {error:.2e}, allowed {allowed:.2e}"


@pytest.mark.parametrize("normalise", NORMALISED)
@pytest.mark.parametrize("squash", SQUASHES)
@pytest.mark.parametrize("iterations", [1, 2, 3, 8])
def test_every_option_is_as_accurate_as_plain_code(
    iterations, squash, normalise
) -> None:
    for leaky, amendment, bias in itertools.product((True, False), repeat=3):
        options = RoutingOptions(iterations, leaky, amendment, squash, normalise)
        given = [problem(bias=bias) for _ in range(5)]
        check(*given, options=options, lottery=iterations > 3)


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1, 1, 1, 1, 1),
        (1, 3, 1, 2, 3, 2, 1),
        (3, 7, 5, 11, 3, 13, 7),  # primes
        (2, 3, 21, 15, 3, 15, 17),  # 63 children, one below and above a vector
        (2, 4, 16, 16, 4, 16, 16),  # 64 children, whole vectors
        (2, 5, 13, 17, 5, 17, 15),  # 65 children, one above
        (2, 54, 32, 16, 3, 16, 16),  # the paper's convolutional layer
        (3, 52, 16, 16, 52, 3, 16),  # and its class layer: children beside few parents
        (2, 9, 5, 7, 1, 3, 6),  # windows of one position
        (1, 40, 9, 8, 2, 4, 8),  # one text, cut into segments that overlap
        (2, 6, 2, 8, 6, 300, 8),  # many parents: short chunks
        (1, 3, 1100, 4, 3, 2, 4),  # many chunks
    ],
    ids="B{0[0]}-P{0[1]}-C{0[2]}-D{0[3]}-K{0[4]}-J{0[5]}-H{0[6]}".format,
)
def test_awkward_shapes_are_as_accurate_as_plain_code(sizes) -> None:
    for options, couplings in itertools.product((PAPER, NORMAL), (True, False)):
        given = problem(*sizes), problem(*sizes)
        check(*given, options=options, couplings=couplings)


@pytest.mark.parametrize("normalise", NORMALISED)
@pytest.mark.parametrize("squash", SQUASHES)
def test_gradcheck(squash: str, normalise: str) -> None:
    given = problem(2, 4, 2, 3, 2, 3, 3, dtype=torch.float64)
    options = RoutingOptions(3, True, True, squash, normalise)
    leaves = [t.requires_grad_() for t in given[:3]]  # type: ignore[union-attr]
    if normalise == "total":
        leaves.append(torch.tensor(GAIN, dtype=torch.float64, requires_grad=True))

    def routed(u: Tensor, W: Tensor, beta: Tensor, gain: Tensor | None = None) -> Any:
        inputs = (u, W, beta, given.mask, options, gain)
        return cpu.route_windows_cpu(*inputs, couplings=True)

    assert torch.autograd.gradcheck(routed, leaves)


@pytest.mark.parametrize("normalise", NORMALISED)
@pytest.mark.parametrize("squash", SQUASHES)
def test_double_is_as_exact_as_the_reference(squash: str, normalise: str) -> None:
    given = problem(2, 20, 4, 11, 3, 9, 10, dtype=torch.float64)
    options = RoutingOptions(4, False, True, squash, normalise)
    exact, fused = outcome(given, options, backend="votes"), outcome(given, options)
    for name, truth in exact.items():
        error = (fused[name] - truth).abs().max() / truth.abs().max()
        assert error < 1e-13, name  # a few hundred roundings


@pytest.mark.parametrize("options", [PAPER, NORMAL], ids=NORMALISED)
def test_masked_windows_are_zero_and_have_no_gradient(options) -> None:
    given = problem(3, 8, 4, 5, 3, 4, 6)
    given.mask[1] = False
    given.mask[2, 2:] = False
    check(given, options=options)
    fused = outcome(given, options)
    assert (fused["poses"][1] == 0).all()
    assert (fused["lengths"][2, 2:] == 0).all()
    assert (fused["couplings"][1] == 0).all()
    assert (fused["capsules"][1] == 0).all()


@pytest.mark.parametrize("normalise", NORMALISED)
def test_zero_capsules_have_finite_gradients(normalise: str) -> None:
    for amendment, squash in itertools.product((True, False), SQUASHES):
        given = problem(bias=False)
        given.capsules[0] = 0
        given.capsules[1, 2] = 0
        check(given, options=RoutingOptions(3, True, amendment, squash, normalise))


@pytest.mark.parametrize("amendment", [True, False])
@pytest.mark.parametrize("gain", [None, 20.0, -3.0, 0.0])
def test_normalised_couplings_sum_to_the_gain(gain, amendment: bool) -> None:
    options = RoutingOptions(3, False, amendment, normalise="total")  # nothing leaks
    given = problem(3, 8, 4, 5, 3, 4, 6, dtype=torch.float64)
    given.mask[0, 3] = False
    factor = None if gain is None else torch.tensor([gain], requires_grad=True)
    routed = cpu.route_windows_cpu(*given, options, factor, couplings=True)
    total = routed.couplings.sum((2, 3))
    expected = (1.0 if gain is None else gain) * given.mask.any(2)
    torch.testing.assert_close(total, expected.double())
    if factor is not None:  # of another type and shape than the kernels' number
        (slope,) = torch.autograd.grad(routed.lengths.sum(), factor)
        assert slope.dtype == factor.dtype and slope.shape == factor.shape
        assert slope.isfinite().all()


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-20, 1e-10, 1e3, 1e10, 1e18])
@pytest.mark.parametrize("squash", ["norm", "sabour", "tanh"])
def test_huge_and_tiny_capsules(scale: float, squash: str) -> None:
    # |u|·u of huge capsules is beyond float32 in any code, unless |u| is normalised.
    given = [problem(2, 6, 3, 8, 2, 4, 8, scale=scale) for _ in range(4)]
    lottery = scale < TINY
    for amendment, normalise in itertools.product((True, False), NORMALISED):
        options = RoutingOptions(3, True, amendment, squash, normalise)
        if scale < 1e10 or not amendment or normalise == "total":
            check(*given, options=options, lottery=lottery)


@pytest.mark.parametrize("options", [PAPER, NORMAL], ids=NORMALISED)
def test_a_child_that_is_no_number_stays_in_its_windows(options) -> None:
    given = problem(1, 9, 5, 4, 2, 3, 4)
    given.capsules[0, 4, 2] = torch.inf
    poses = cpu.route_windows_cpu(*given, options).poses
    finite = poses.isfinite().all(-1).all(-1)[0]
    touched = torch.tensor(
        [w in (3, 4) and bool(given.mask[0, w, 4 - w]) for w in range(8)]
    )
    assert (finite == ~touched).all()


def test_inputs_that_are_not_contiguous() -> None:
    B, P, C, D, K, J, H = 3, 6, 4, 8, 3, 5, 7
    strided = Problem(
        torch.randn(D, C, P, B).permute(3, 2, 1, 0) / 2,
        torch.randn(H, D, J).permute(2, 1, 0) / 2,
        torch.randn(H, J).T,
        (torch.rand(B, P - K + 1) > 0.3).unsqueeze(2).expand(-1, -1, K),
    )
    assert not any(t.is_contiguous() for t in strided if t is not None)
    check(strided)


def test_gradients_that_are_not_contiguous_or_absent() -> None:
    given = problem()
    for pick in ("poses", "lengths", "couplings"):
        results = []
        for backend in ("cpu", "vote-free"):
            u = given.capsules.clone().requires_grad_()
            routed = route_windows(u, *given[1:], backend=backend)  # type: ignore[misc]
            output = getattr(routed, pick)
            part = output.sum() if pick == "couplings" else output.mT.sum(0).exp().sum()
            results.append(torch.autograd.grad(part, u)[0])
        torch.testing.assert_close(results[0], results[1], msg=pick)


@pytest.mark.parametrize("options", [PAPER, NORMAL], ids=NORMALISED)
def test_results_do_not_depend_on_what_memory_held(options, monkeypatch) -> None:
    sizes = (3, 52, 7, 11, 3, 5, 9)
    given = problem(*sizes)
    clean = outcome(given, options)
    empty, new_empty = torch.empty, Tensor.new_empty
    poisoned = []

    def poison(tensor: Tensor) -> Tensor:
        poisoned.append(tensor.numel())
        return tensor.fill_(torch.nan)

    monkeypatch.setattr(torch, "empty", lambda *a, **k: poison(empty(*a, **k)))
    monkeypatch.setattr(
        Tensor, "new_empty", lambda self, *a, **k: poison(new_empty(self, *a, **k))
    )
    again = outcome(given, options)
    monkeypatch.undo()
    assert sum(poisoned) > 10_000  # sums, gradients and the kernels' own memory
    for name, value in clean.items():
        assert torch.equal(value, again[name]), name


@pytest.mark.parametrize("options", [PAPER, NORMAL], ids=NORMALISED)
@pytest.mark.parametrize("batch", [1, 25])
def test_bits_do_not_depend_on_the_threads(batch: int, options) -> None:
    given = problem(batch, 60, 8, 16, 3, 8, 16)
    before = torch.get_num_threads()
    first = outcome(given, options)
    try:
        for threads in (1, 2, 3, 3):
            torch.set_num_threads(threads)
            for name, value in outcome(given, options).items():
                assert torch.equal(value, first[name]), f"{name}, {threads} threads"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", ["PyTorch's", "our own"])
def test_either_threads_give_the_same_bits(threads, monkeypatch) -> None:
    given = problem(6, 30, 8, 16, 3, 8, 16)
    expected = outcome(given)
    reached = []
    if threads == "our own":  # as where PyTorch has another OpenMP
        monkeypatch.setattr(call, "torch_threads", lambda: None)
        pool = call.thread_pool()
        monkeypatch.setattr(call, "thread_pool", lambda: reached.append(1) or pool)
    elif call.torch_threads() is None:
        pytest.skip("PyTorch's threads are not available here")
    else:
        run = call.torch_threads()
        monkeypatch.setattr(call, "torch_threads", lambda: reached.append(1) or run)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for name, value in outcome(given).items():
            assert torch.equal(value, expected[name]), name
    finally:
        torch.set_num_threads(before)
    assert len(reached) == 2  # forward and backward


def test_callers_on_several_threads_do_not_disturb_each_other() -> None:
    problems = [problem(4, 20, 8, 16, 3, 8, 16) for _ in range(4)]
    alone = [cpu.route_windows_cpu(*given).poses for given in problems]
    together: list[Tensor | None] = [None] * 4

    def work(which: int) -> None:
        for _ in range(5):
            together[which] = cpu.route_windows_cpu(*problems[which]).poses

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(alone, together, strict=True):
        assert other is not None and torch.equal(one, other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_can_route() -> None:
    given = problem(4, 20, 8, 16, 3, 8, 16)
    expected = cpu.route_windows_cpu(*given).poses
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
        child = os.fork()
    if child == 0:
        torch.set_num_threads(2)
        same = torch.equal(cpu.route_windows_cpu(*given).poses, expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


ANOTHER_PROCESS = """
import torch
from textcapsules.model.kernels.cpu import route as cpu
u = torch.rand(2, 5, 3, 4, requires_grad=True)
mask = torch.ones(2, 4, 2, dtype=torch.bool)
cpu.route_windows_cpu(u, torch.rand(3, 4, 5), None, mask).poses.sum().backward()
for name in ("forward", "backward"):
    print(cpu.compiled_kernel(name, u.dtype).cache_hits)
"""


def test_a_second_process_compiles_nothing() -> None:
    outcome(problem())  # compiled by now, here or in an earlier run
    answer = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS], capture_output=True, text=True
    )
    assert answer.stdout.split() == ["1", "1"], answer.stderr


def test_the_package_imports_without_numba() -> None:
    code = (
        "import sys; sys.modules['numba'] = None; import textcapsules;"
        "from textcapsules.model.kernels.cpu import route as cpu; import torch;"
        "print(cpu.supports(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert answer.stdout.strip() == "numba is not installed", answer.stderr


def test_a_broken_compiler_leaves_the_plain_code(monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no\nLLVM")

    monkeypatch.setattr(cpu, "kernel", broken)
    monkeypatch.setattr(cpu, "compile_problem", cpu.compile_problem.__wrapped__)
    given = problem()
    assert cpu.supports(*given[:3]) == (
        "the kernels cannot be compiled (RuntimeError: no LLVM)"
    )
    plain = route_windows(*given, backend="vote-free")
    for one, other in zip(route_windows(*given), plain, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("normalise", NORMALISED)
def test_a_training_run_follows_the_reference(normalise: str) -> None:
    sizes = {"embedding_size": 12, "capsule_types": 4, "conv_types": 3, "filters": 8}
    config = preset("paper").replace(model={**sizes, "normalise": normalise})
    ids, lengths = torch.randint(2, 50, (10, 12)), torch.randint(4, 13, (10,))
    mask = torch.arange(12) < lengths.unsqueeze(1)
    targets = torch.eye(3)[torch.randint(0, 3, (10,))]
    losses = {}
    for backend in ("cpu", "vote-free"):
        torch.manual_seed(1)
        network = build_network(config.model, n_words=50, n_classes=3, max_tokens=12)
        for layer in network.modules():
            if isinstance(layer, RoutedLayer):
                layer.backend = backend
        optimiser = torch.optim.Adam(network.parameters(), 0.01)
        losses[backend] = []
        for _ in range(20):
            loss = network_loss(config.loss, network(ids, mask).scores, targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[backend].append(loss.item())
    assert losses["cpu"][-1] < 0.9 * losses["cpu"][0]
    # Adam's first steps divide tiny gradients by their own size: roundings grow.
    assert losses["cpu"] == pytest.approx(losses["vote-free"], rel=1e-3)


def test_sums_are_kept_only_where_a_gradient_is_wanted(monkeypatch) -> None:
    kept = []
    measure = cpu.measure
    monkeypatch.setattr(
        cpu, "measure", lambda *a: kept.append(measure(*a).keeps_sums) or measure(*a)
    )
    given = problem()
    leaf = given.capsules.requires_grad_()
    cpu.route_windows_cpu(*given)
    with torch.no_grad():
        cpu.route_windows_cpu(*given)
    cpu.route_windows_cpu(leaf.detach(), *given[1:])
    gain = torch.tensor(GAIN, requires_grad=True)
    cpu.route_windows_cpu(leaf.detach(), *given[1:], NORMAL, gain)
    assert kept == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"transform": torch.ones(6, 3, 4, 5)}, "the transform is not shared"),
        ({"capsules": torch.ones(2, 5, 3, 4, device="meta")}, "a tensor is on meta"),
        ({"capsules": torch.ones(2, 5, 3, 4).bfloat16()}, "the type is torch.bfloat16"),
        ({"bias": torch.ones(3, 5).double()}, "the types .* differ"),
        ({"options": RoutingOptions(squash="soft")}, "the squash 'soft' is unknown"),
        ({"options": RoutingOptions(normalise="mean")}, "the normalisation 'mean' is"),
        ({"options": RoutingOptions(compete=False)}, "the parents do not compete"),
    ],
)
def test_what_cannot_be_routed_is_refused_with_the_reason(change, reason) -> None:
    given = {**problem()._asdict(), "options": RoutingOptions(), **change}
    with pytest.raises(ValueError, match=reason):
        cpu.route_windows_cpu(**given)
    assert cpu.supports(*problem()[:3]) is None


class Two(NamedTuple):
    source: int
    target: int


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_is_within_two_units_in_the_last_place(dtype) -> None:
    from numba import njit

    from textcapsules.model.kernels.cpu import simd

    @njit
    def exponentials(like, addresses, n):
        arrays = simd.pointers(addresses, like[0])
        for i in range(0, n, simd.lanes(arrays.source)):
            simd.store(arrays.target, i, simd.exp(simd.load(arrays.source, i)))

    lowest = -87.0 if dtype == np.float32 else -708.0
    x = np.linspace(lowest, 0, 1 << 14).astype(dtype)
    x[:4] = (-np.inf, -1e30, np.nan, 0)
    out = np.empty_like(x)
    exponentials(x, Two(x.ctypes.data, out.ctypes.data), x.size)
    assert (out[:2] == 0).all() and np.isnan(out[2]) and out[3] == 1
    exact = np.exp(x[3:].astype(np.longdouble))
    units = np.abs(out[3:] - exact) / np.spacing(exact.astype(dtype))
    assert units.max() < 2
