"""What moves the weights: Adam, the learning rate of a step, a running average.

Every epoch has the same number of steps (as many texts are joined in each), so the
number of a step among all steps follows from its epoch and its place there.
"""

import inspect
import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from textcapsules.base.errors import TextCapsulesError
from textcapsules.config import RunConfig, TrainConfig
from textcapsules.text.encoder_training import LearningEncoder

__all__ = [
    "AveragedWeights",
    "PiecewiseAdam",
    "changes_by_step",
    "make_optimiser",
    "rate_at",
]

PIECE = 8192  # numbers
FEW = 2**20  # weights: more of them fill a GPU anyway
# As torch wraps it, it would import torch's compiler; see `without_compiler`.
PLAIN_STEP: Any = inspect.unwrap(torch.optim.Adam.step)


class PiecewiseAdam(torch.optim.Adam):
    """Adam whose kernel gets small networks' tensors in pieces: the same bits sooner.

    The kernel's blocks take 65,536 numbers of one tensor each. A capsule network's
    tensors have fewer, so one of some dozens of blocks would have most of the work.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the weights; more than `FEW` of them as `Adam` does."""
        weights = itertools.chain(*(group["params"] for group in self.param_groups))
        if closure is not None or sum(p.numel() for p in weights) > FEW:
            return PLAIN_STEP(self, closure)
        for group in self.param_groups:
            parts: tuple[list[Tensor], ...] = ([], [], [], [], [], [])
            self._init_group(group, *parts)
            params, gradients, means, squares, _, counts = parts
            if not params:
                continue
            kernels: Any = torch  # that `Adam` calls too
            kernels._foreach_add_(counts, 1)
            rows = zip(params, gradients, means, squares, counts, strict=True)
            *pieces, counts = map(list, zip(*cut(rows), strict=True))
            decays = group["decoupled_weight_decay"]
            update = kernels._fused_adamw_ if decays else kernels._fused_adam_
            beta1, beta2 = group["betas"]
            names = ("lr", "weight_decay", "eps", "amsgrad", "maximize")
            options = {name: group[name] for name in names}
            update(*pieces, [], counts, beta1=beta1, beta2=beta2, **options)
        return None


def cut(rows: Iterable[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
    """Cut the tensors of each row into pieces; the last one, a number, goes to all."""
    for *tensors, count in rows:
        if all(t.is_contiguous() for t in tensors):
            tensors = [t.view(-1).split(PIECE) for t in tensors]
        else:
            tensors = [[t] for t in tensors]
        for pieces in zip(*tensors, strict=True):
            yield *pieces, count


def make_optimiser(
    network: nn.Module, config: RunConfig, device: torch.device
) -> torch.optim.Adam:
    """Return Adam, or AdamW if weights decay."""
    kind: type[torch.optim.Adam] = torch.optim.AdamW
    options: dict[str, Any] = {"fused": True, "capturable": device.type == "cuda"}
    if device.type == "cuda":
        kind = PiecewiseAdam
        options["decoupled_weight_decay"] = bool(config.train.weight_decay)
    elif not config.train.weight_decay:
        kind = torch.optim.Adam
    return without_compiler(kind)(
        [
            # A tensor, so that a captured step reads the rate set last.
            {**group, "lr": torch.tensor(config.train.learning_rate, device=device)}
            for group in parameter_groups(network, config)
        ],
        **options,
    )


@cache
def without_compiler(kind: type[torch.optim.Adam]) -> type[torch.optim.Adam]:
    """Return an optimiser that does the same and does not import torch's compiler.

    torch wraps some methods, so that its compiler leaves them alone, and the wrapping
    imports the compiler: seconds in a new process that compiles nothing by it.
    """
    wrapped = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods: dict[str, Any] = {
        name: inspect.unwrap(getattr(kind, name)) for name in wrapped
    }
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


def parameter_groups(network: nn.Module, config: RunConfig) -> list[dict[str, Any]]:
    """Return the parameters that Adam updates, grouped by learning rate and decay.

    An encoder has its own rate, lower by a factor for every layer further down.

    Word vectors from a file are good already and may have a lower rate; those drawn at
    random take the same rate as the rest. Only the weights of products decay: large
    biases and gains are no sign of overfitting, and the vector of a rare word would
    fade between the texts that have it.
    """
    share = 1.0 if config.text.vectors is None else config.train.vector_rate
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Embedding)]
    words = {id(layer.weight) for layer in layers}
    in_encoder = encoder_shares(network, config.train)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        is_word = id(parameter) in words
        # A capsule's bias may have several dimensions, so its name decides.
        spared = is_word or parameter.ndim < 2 or "bias" in name.rpartition(".")[2]
        rate = in_encoder.get(parameter, share if is_word else 1.0)
        key = rate, 0.0 if spared else config.train.weight_decay
        groups.setdefault(key, []).append(parameter)
    # A fixed order, since checkpoints store the moments by number.
    return [
        {"params": groups[key], "share": key[0], "weight_decay": key[1]}
        for key in sorted(groups, key=lambda key: (key[0] != 1, -key[0], -key[1]))
    ]


def encoder_shares(network: nn.Module, train: TrainConfig) -> dict[nn.Parameter, float]:
    """Return the learning rate of each weight of an encoder, as a share of the run's.

    So it follows the run's schedule.
    """
    share = train.encoder_rate / train.learning_rate
    return {
        parameter: share * train.encoder_decay**depth
        for part in network.children()
        if isinstance(part, LearningEncoder)
        for depth, parameter in part.learning_parameters()
    }


class AveragedWeights:
    """A running average of the weights: mean <- d mean + (1 - d) weights, per step.

    The weights of single steps scatter around the point that they approach; their
    average is nearer to it. Only parameters are averaged, no running statistics.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        learnt = {n: p for n, p in network.named_parameters() if p.requires_grad}
        # Captured steps write to the weights in place, so these stay up to date.
        self.weights: list[Tensor] = [p.detach() for p in learnt.values()]
        self.mean: dict[str, Tensor] = {
            n: p.detach().clone() for n, p in learnt.items()
        }

    def update(self, step: int) -> None:
        """Add the weights after a step, counted from 0 over all epochs.

        The past weighs less at first, when it is mostly the initial weights.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        # One kernel for all weights, after the captured step.
        torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
            list(self.mean.values()), self.weights, 1 - decay
        )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the network the average while the block runs."""
        raw = [weight.clone() for weight in self.weights]
        for weight, mean in zip(self.weights, self.mean.values(), strict=True):
            weight.copy_(mean)
        try:
            yield
        finally:
            for weight, before in zip(self.weights, raw, strict=True):
                weight.copy_(before)


def changes_by_step(train: TrainConfig) -> bool:
    """Tell whether the rate depends on the step, and so on the number of epochs."""
    return train.schedule != "constant" or train.warmup > 0


def rate_at(train: TrainConfig, epoch: int, step: int, n_steps: int) -> float:
    """Return the learning rate of a step: warm-up, fall to zero, factor per epoch.

    >>> train = TrainConfig(
    ...     learning_rate=1.0, epochs=2, schedule="linear", warmup=0.5
    ... )
    >>> [rate_at(train, epoch, step, 2) for epoch in (0, 1) for step in (0, 1)]
    [0.5, 0.75, 0.5, 0.25]
    """
    try:
        rate = train.learning_rate * train.rate_decay**epoch
    except OverflowError:
        rate = math.inf
    if not math.isfinite(rate):
        raise TextCapsulesError(
            f"the learning rate must stay finite; got {rate} in epoch {epoch + 1}. "
            "Lower --learning-rate or --rate-decay."
        )
    if not changes_by_step(train):
        return rate
    assert train.epochs is not None  # `resolve` has settled it
    k, n = epoch * n_steps + step, train.epochs * n_steps
    if k + 1 < train.warmup * n:
        rate *= (k + 1) / (train.warmup * n)
    if train.schedule == "linear":
        rate *= (n - k) / n
    elif train.schedule == "cosine":
        rate *= (1 + math.cos(math.pi * k / n)) / 2
    return rate
