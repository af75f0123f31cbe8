"""Adam as torch has it, without the seconds of importing torch's compiler."""

import subprocess
import sys

import pytest
import torch

from textcapsules.training.optimise import without_compiler

STEP = """
import sys, torch
from torch import nn
from textcapsules.config import preset
from textcapsules.training.optimise import make_optimiser

network = nn.Linear(3, 2)
optimiser = make_optimiser(network, preset("paper"), torch.device("cpu"))
network(torch.ones(1, 3)).sum().backward()
nn.utils.clip_grad_norm_(network.parameters(), 1.0)
optimiser.step()
optimiser.zero_grad(set_to_none=True)
assert optimiser.state_dict()["state"]
sys.exit("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_steps_are_those_of_torchs_own_optimiser(kind) -> None:
    found = []
    for each in (without_compiler(kind), kind):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(5, 3))
        groups = [{"params": [weight], "lr": torch.tensor(0.1), "weight_decay": 0.3}]
        optimiser = each(groups, fused=True)
        for _ in range(3):
            (weight**2).sum().backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            optimiser.load_state_dict(optimiser.state_dict())
        assert weight.grad is None
        found.append(weight.detach())
    assert torch.equal(*found)


@pytest.mark.slow  # a process of its own
def test_a_step_does_not_import_torchs_compiler() -> None:
    subprocess.run([sys.executable, "-c", STEP], check=True)
