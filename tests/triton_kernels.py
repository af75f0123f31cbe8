"""The Triton kernels, run by its interpreter where there is no GPU."""

import importlib
import os
import sys
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def load_kernels() -> None:
    """Import the kernels, for the interpreter if there is no GPU."""
    if DEVICE == "cuda":
        return
    # Triton reads the variable as it decorates, so what was imported without it is
    # imported again; its compiled part can be loaded only once.
    for name in list(sys.modules):
        ours = name.startswith("textcapsules.model.routing.gpu_")
        if ours or (name.split(".")[0] == "triton" and "triton._C" not in name):
            del sys.modules[name]
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        importlib.import_module("textcapsules.model.routing.gpu_class")
        importlib.import_module("textcapsules.model.routing.gpu_squash")
    finally:
        del os.environ["TRITON_INTERPRET"]
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    patch = interpreter._patch_lang_tensor

    def patch_index(tensor, scope) -> None:
        # Triton 3.6 calls int() on arrays of one entry, which NumPy 2.4 refuses.
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_index


load_kernels()
