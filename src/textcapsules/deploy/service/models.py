"""The models of a service: which folders, under which names."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from textcapsules.base.errors import ConfigError, ModelFolderError
from textcapsules.model.classifier import TextClassifier

__all__ = ["ServedModel", "load_models", "name_models"]

# A name of one's own, as in `tickets=runs/demo/model`.
NAMED = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)

# Read once before anyone waits: the first texts compile the kernels.
WARM_UP = ["warm up", "the quick brown fox jumps over the lazy dog " * 4]


class ServedModel(NamedTuple):
    """A model and what requests call it."""

    name: str
    classifier: TextClassifier


def name_models(places: Sequence[str]) -> dict[str, Path]:
    """Return the folder of each name: `NAME=FOLDER`, or a folder's own name."""
    named: dict[str, Path] = {}
    for place in places:
        match = None if Path(place).is_dir() else NAMED.fullmatch(place)
        folder = Path(match[2] if match else place)
        name = match[1] if match else folder.resolve().name
        if name in named:
            raise ConfigError(
                f"models must have different names; got {name!r} twice. Give one "
                f"another name: NAME={folder}."
            )
        named[name] = folder
    return named


def load_models(folders: dict[str, Path], device: str = "auto") -> list[ServedModel]:
    """Load every model and let it read a first text; refuse one that cannot score."""
    models = [
        ServedModel(name, TextClassifier.load(folder, device))
        for name, folder in folders.items()
    ]
    for model in models:
        texts = [*WARM_UP, *model.classifier.labels.names]
        if not np.isfinite(model.classifier.scores(texts)).all():
            raise ModelFolderError(
                f"{folders[model.name]} must hold a model with finite scores; got NaN "
                "or infinity for a first text. Restore the folder or train again."
            )
    return models
