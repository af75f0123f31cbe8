"""Seeds for every test."""

import random

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
