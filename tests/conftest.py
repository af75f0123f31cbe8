"""Seeds for every test, and one thread each: small tensors gain nothing from more."""

import os
import random

import numpy as np
import pytest
import torch

from browser_driver import browser, module_browser

__all__ = ["browser", "module_browser"]  # fixtures for every folder

os.environ["OMP_NUM_THREADS"] = "1"  # for processes that tests start
os.environ["TEXTCAPSULES_ENCODER"] = "none"  # tests name the encoder they want
torch.set_num_threads(1)
if not torch.cuda.is_available():  # Triton reads it when a kernel is declared
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
