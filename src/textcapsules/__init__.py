"""Capsule networks for text.

Train on texts that carry one label each, predict all the labels a new text deserves.
The rooms, in the order of the data's path; each imports only from those before it:
`base`, `config`, `data`, `text`, `model`, `reasons`, `training`, `inference`, `draw`,
`deploy`, `lab`, `cli`; and `__main__`, which runs the last one.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

# Torch's threads spin for milliseconds while they wait; beside any other busy process
# that made training up to 40 times slower. Read when torch is loaded, so it has no
# effect on programs that import torch first.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

if TYPE_CHECKING:
    from textcapsules.config import preset
    from textcapsules.deploy.hub import from_pretrained, push_to_hub
    from textcapsules.inference.estimator import CapsuleClassifier
    from textcapsules.model.classifier import TextClassifier
    from textcapsules.model.layers import (
        AttentionLayer,
        CapsuleDropout,
        CapsuleLayer,
        ConvCapsules,
        JointNgrams,
        NgramConv,
        PrimaryCapsules,
    )
    from textcapsules.model.routing import RoutingOptions, route
    from textcapsules.reasons.texts import explain
    from textcapsules.training.run import train

__all__ = [
    "AttentionLayer",
    "CapsuleClassifier",
    "CapsuleDropout",
    "CapsuleLayer",
    "ConvCapsules",
    "JointNgrams",
    "NgramConv",
    "PrimaryCapsules",
    "RoutingOptions",
    "TextClassifier",
    "explain",
    "from_pretrained",
    "preset",
    "push_to_hub",
    "route",
    "train",
]

__version__ = "0.2.0"

# Where the public names live. They are imported when first used: torch takes seconds.
_HOMES = {
    "textcapsules.config": ["preset"],
    "textcapsules.deploy.hub": ["from_pretrained", "push_to_hub"],
    "textcapsules.inference.estimator": ["CapsuleClassifier"],
    "textcapsules.model.classifier": ["TextClassifier"],
    "textcapsules.model.layers": [
        "AttentionLayer",
        "CapsuleDropout",
        "CapsuleLayer",
        "ConvCapsules",
        "JointNgrams",
        "NgramConv",
        "PrimaryCapsules",
    ],
    "textcapsules.model.routing": ["RoutingOptions", "route"],
    "textcapsules.reasons.texts": ["explain"],
    "textcapsules.training.run": ["train"],
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
