"""A trained model as bytes, for other processes and for pickles."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from textcapsules.classifier import TextClassifier

__all__ = ["pack", "unpack"]


def pack(model: TextClassifier) -> dict[str, bytes]:
    """Return the files of a model folder: nothing bound to a device or a library."""
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        model.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def unpack(files: Mapping[str, bytes], device: str) -> TextClassifier:
    """Return the model that `pack` was given, on a device that is there."""
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return TextClassifier.load(folder, device)
