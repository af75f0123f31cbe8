"""The Triton kernels, run by its interpreter where there is no GPU."""

import importlib
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def mend_interpreter() -> None:
    """Triton 3.6 calls int() on arrays of one entry, which NumPy 2.4 refuses."""
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    patch = interpreter._patch_lang_tensor

    def patch_index(tensor, scope) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_index


if DEVICE == "cpu":
    mend_interpreter()
