"""Capsule networks for text.

Train on texts that carry one label each, predict all the labels a new text deserves.
The rooms, in the order of the data's path; each imports only from those before it:
`base`, `config`, `data`, `text`, `model`, `training`, `reasons`, `inference`, `draw`,
`deploy`, `lab`, `cli`.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

# Where the public names live. They are imported when first used: torch takes seconds.
_HOMES = {
    "CapsuleClassifier": "textcapsules.inference.estimator",
    "TextClassifier": "textcapsules.model.classifier",
    "from_pretrained": "textcapsules.deploy.hub",
    "push_to_hub": "textcapsules.deploy.hub",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
