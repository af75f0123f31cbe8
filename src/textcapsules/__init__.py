"""Capsule networks for text.

Train on texts that carry one label each, predict all the labels a new text deserves.
The modules, in the order of the data's path; each imports only from those before it:
`errors`, `notices`, `files`, `reading`, `sums`, `inputs`, `config`, `data`, `text`,
`model`, `losses_gpu`, `losses`, `metrics`, `calibrate`, `classifier`, `training`,
`evaluate`, `bulk`, `explain`, `report`, `demo`, `bench`, `progress`, `packed`,
`bulk_ray`, `estimator`, `model_card`, `hub`, `export`, `serve`, `reproduce`, `cli`.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

# Where the public names live. They are imported when first used: torch takes seconds.
_HOMES = {
    "CapsuleClassifier": "textcapsules.estimator",
    "TextClassifier": "textcapsules.classifier",
    "from_pretrained": "textcapsules.hub",
    "push_to_hub": "textcapsules.hub",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
