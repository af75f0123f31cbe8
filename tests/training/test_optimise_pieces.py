"""Adam in pieces against Adam: the same bits, in every group and state."""

import copy

import pytest
import torch
from torch import nn

from textcapsules.training import optimise
from textcapsules.training.optimise import PiecewiseAdam

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def weights() -> list[nn.Parameter]:
    torch.manual_seed(0)
    shapes = [(64, 48), (32,), (16, 32, 3), (1,), (0, 4)]
    tensors = [torch.randn(shape, device=DEVICE) for shape in shapes]
    tensors.append(torch.randn(48, 32, device=DEVICE).t())  # not side by side
    return [nn.Parameter(t) for t in tensors]


def optimiser(kind: type, params: list[nn.Parameter], decay: float) -> torch.optim.Adam:
    rate = torch.tensor(0.01, device=DEVICE)
    groups = [
        {"params": params[:2], "lr": rate, "weight_decay": decay},
        {"params": params[2:], "lr": rate / 4, "weight_decay": 0.0},
    ]
    given = {} if decay == 0 else {"decoupled_weight_decay": True}
    return kind(groups, fused=True, capturable=DEVICE == "cuda", **given)


def follow(adam: torch.optim.Adam, params: list[nn.Parameter], steps: int) -> None:
    torch.manual_seed(1)
    for _ in range(steps):
        for p in params[:-1]:
            p.grad = torch.randn_like(p)
        params[-1].grad = torch.randn_like(params[-1]) if steps > 2 else None
        adam.step()


@pytest.mark.parametrize("few", [0, 2**20], ids=["whole", "pieces"])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_pieces_change_no_bit(decay, few, monkeypatch) -> None:
    monkeypatch.setattr(optimise, "PIECE", 256)
    monkeypatch.setattr(optimise, "FEW", few)
    calls: list[int] = []
    name = "_fused_adamw_" if decay else "_fused_adam_"
    fused = getattr(torch, name)

    def spy(params, *rest, **options):
        calls.append(len(params))
        return fused(params, *rest, **options)

    monkeypatch.setattr(torch, name, spy)
    ours, theirs = weights(), weights()
    adam, plain = optimiser(PiecewiseAdam, ours, decay), None
    follow(adam, ours, 3)
    assert calls[:2] == ([13, 9] if few else [2, 4])
    plain = optimiser(torch.optim.Adam, theirs, decay)
    follow(plain, theirs, 3)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    # One goes on where the other stopped.
    adam.load_state_dict(copy.deepcopy(plain.state_dict()))
    follow(adam, ours, 2)
    follow(plain, theirs, 2)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    for p, q in zip(ours, theirs, strict=True):
        for key, value in plain.state[q].items():
            assert torch.equal(adam.state[p][key], value)
