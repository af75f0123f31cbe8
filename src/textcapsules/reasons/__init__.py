"""Which phrases spoke for each label, and whether that is true.

`types`, `routes`, `networks`, `attributions`, `strengths`, `phrases`, `texts` (the way
in), `faithfulness`, `corpus`, `displays`, `convergence`.
"""

import importlib
from typing import Any

# The ways in, imported when first used: the modules above import from each other.
_HOMES = {
    "explain": "textcapsules.reasons.texts",
    "explain_corpus": "textcapsules.reasons.corpus",
    "measure_faithfulness": "textcapsules.reasons.faithfulness",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
