"""Adam as torch has it, without the seconds of importing torch's compiler."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from textcapsules.training.optimise import without_compiler

TRAINING = """
import sys, tempfile
from pathlib import Path
from textcapsules.training.run import train
sys.path.insert(0, sys.argv[2])
from toy import tiny_config, toy_file

folder = Path(tempfile.mkdtemp(dir=sys.argv[1]))
options = {"epochs": 1, "clip_norm": 1.0, "average_weights": 0.9}
train(tiny_config(toy_file(folder), train=options), folder / "model")
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
def test_a_training_does_not_import_torchs_compiler(tmp_path) -> None:
    tests = Path(__file__).parents[1]
    words = [sys.executable, "-c", TRAINING, str(tmp_path), str(tests)]
    subprocess.run(words, check=True)
