"""What tests of a training run look at: its weights, its figures, a file of vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from textcapsules.model.classifier import TextClassifier

TIMES = ("train_seconds", "dev_seconds")


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def folder_content(folder: Path) -> dict[str, bytes]:
    """Return all files of a model; of its record only what no clock decides."""
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    record = json.loads(content["training.json"])
    del record["seconds"], record["ended"], record["sha256"]["training.json"]
    for epoch in record["epochs"]:
        del epoch["train_seconds"], epoch["dev_seconds"]
    content["training.json"] = json.dumps(record).encode()
    return content


def figures(classifier: TextClassifier) -> list[dict[str, Any]]:
    """Return the epochs' records without what the clock says."""
    return [
        {key: value for key, value in record.items() if key not in TIMES}
        for record in classifier.record["epochs"]
    ]


def vectors_file(folder: Path) -> Path:
    """Write a vector for `cat` and for `zebra`, which no text has."""
    path = folder / "vectors.npz"
    words = np.array(["cat", "zebra"])
    matrix = np.array([[0.5] * 5, [-0.5] * 5], dtype=np.float32)
    np.savez(path, words=words, vectors=matrix)
    return path
