"""Export a model to ONNX: three files that need nothing of this package.

`model.onnx` maps word numbers to scores; `tokenizer.json`, read by `tokenizers`, makes
the numbers, cuts long texts and pads short ones; `labels.json` names the classes and
their thresholds. Before any of them is written, random texts go through the three files
and through the original model, and must get the same scores.
"""

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from textcapsules.base.errors import (
    ModelFolderError,
    TextCapsulesError,
    WriteError,
    warn,
)
from textcapsules.base.files import write_bytes, write_text
from textcapsules.deploy.onnx.graph import IR_VERSION, OPSET
from textcapsules.deploy.onnx.network import network_graph
from textcapsules.model.classifier import TextClassifier
from textcapsules.text.vocabulary import PAD, PAD_ID

__all__ = ["FILES", "TOLERANCE", "Exported", "export_onnx", "random_texts"]

FILES = ("tokenizer.json", "labels.json", "model.onnx")
TOLERANCE = 1e-4
BATCH_SIZE = 32


class Exported(NamedTuple):
    """The three files' content, not yet written."""

    tokenizer: str
    labels: str
    model: bytes


def export_onnx(
    classifier: TextClassifier,
    folder: Path | str,
    *,
    overwrite: bool = False,
    n_texts: int = 200,
    seed: int = 0,
) -> dict[str, Any]:
    """Write a model to `folder` for onnxruntime; return its facts and the comparison.

    Args:
        classifier: a trained capsule network.
        folder: where the three files go.
        overwrite: replace those files if they are there.
        n_texts: random texts on which both must agree to `TOLERANCE`.
        seed: of the random texts.
    """
    folder = Path(folder)
    check_target(folder, overwrite)
    exported = build(classifier)
    texts = random_texts(classifier, n_texts, seed)
    difference = largest_difference(classifier, exported, texts)
    if not difference <= TOLERANCE:  # NaN is refused too
        raise TextCapsulesError(
            f"exported scores must be within {TOLERANCE} of the model's; got a "
            f"difference of {difference:.2g}. Nothing was written."
        )
    write_text(folder / "tokenizer.json", exported.tokenizer)
    write_text(folder / "labels.json", exported.labels)
    write_bytes(folder / "model.onnx", exported.model)  # last: then all is there
    return {
        "folder": str(folder),
        "files": list(FILES),
        "bytes": len(exported.model),
        "opset": OPSET,
        "ir_version": IR_VERSION,
        "texts_compared": len(texts),
        "largest_difference": difference,
    }


def check_target(folder: Path, overwrite: bool) -> None:
    """Leave existing files alone unless told otherwise."""
    if folder.exists() and not folder.is_dir():
        raise WriteError(f"{folder} must be a folder; got a file. Name another.")
    if (folder / "model.safetensors").exists():
        raise WriteError(
            f"{folder} must not be a model folder, whose files would be replaced; "
            "got one. Name another folder."
        )
    existing = [name for name in FILES if (folder / name).exists()]
    if existing and not overwrite:
        raise WriteError(
            f"{folder} must not hold an export yet; got {', '.join(existing)}. Name "
            "another folder, or pass --overwrite."
        )


def build(classifier: TextClassifier) -> Exported:
    """Return the content of the three files."""
    limit, labels = classifier.config.text.max_tokens, classifier.labels
    rows = [
        {"name": name, "threshold": threshold}
        for name, threshold in zip(labels.names, labels.thresholds, strict=True)
    ]
    about = {"task": labels.task, "max_tokens": limit, "labels": rows}
    described = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    facts = {key: json.dumps(value) for key, value in about.items()}
    drop = classifier.config.text.unknown != "keep"
    if classifier.config.text.unknown == "nearest":
        warn(
            "the exported model drops misspelt words, which the model itself reads as "
            "the words that are meant (--unknown nearest)."
        )
    model = network_graph(classifier.network, limit, facts, drop_unknown=drop)
    return Exported(tokenizer_json(classifier), described, model.SerializeToString())


def tokenizer_json(classifier: TextClassifier) -> str:
    """Return the model's tokenizer; it also cuts long texts and pads short ones."""
    with tempfile.TemporaryDirectory() as folder:
        classifier.tokenizer.save(Path(folder) / "tokenizer.json")
        tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.enable_truncation(classifier.config.text.max_tokens)
    tokenizer.enable_padding(pad_id=PAD_ID, pad_token=PAD)
    return tokenizer.to_str(pretty=True)


def random_texts(classifier: TextClassifier, n_texts: int, seed: int) -> list[str]:
    """Draw texts of the vocabulary's words, from none to more than are read.

    One word in ten is unknown; every tenth text has no known word at all.
    """
    random = np.random.default_rng(seed)
    words, limit = classifier.tokenizer.words[2:], classifier.config.text.max_tokens
    texts = ["", " \n", words[0], " ".join(words[:1] * (limit + 3))]
    while len(texts) < n_texts:
        # As many short texts as long ones: most mistakes happen with short texts.
        length = int(math.exp(random.uniform(0, math.log(limit + 10))))
        drawn = random.choice(words, length)
        unknown = random.random(length) < (1 if len(texts) % 10 == 0 else 0.1)
        chosen = np.where(unknown, "\u16a0nknown\u16a0", drawn)
        texts.append(" ".join(chosen))
    return texts


def largest_difference(
    classifier: TextClassifier, exported: Exported, texts: Sequence[str]
) -> float:
    """Return the largest difference between the exported scores and the model's."""
    session = open_session(exported.model)
    tokenizer = Tokenizer.from_str(exported.tokenizer)
    expected = classifier.scores(texts)
    gaps = []
    for size in (1, BATCH_SIZE):  # both batch sizes must work
        parts = [texts[row : row + size] for row in range(0, len(texts), size)]
        scores = np.concatenate([score(session, tokenizer, part) for part in parts])
        gaps.append(np.abs(scores - expected).max())
    return float(np.max(gaps))


def score(session: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray:
    """Return the exported model's scores of some texts, (N, J)."""
    encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    ids = np.array([each.ids for each in encoded], dtype=np.int64)
    return session.run(["scores"], {"ids": ids})[0]


def open_session(model: bytes) -> Any:
    """Open a model in onnxruntime, an extra."""
    try:
        import onnxruntime
    except ImportError as error:
        raise TextCapsulesError(
            "onnxruntime must be installed to check an export; got none. "
            "Run `pip install 'textcapsules[onnx]'`."
        ) from error
    try:
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has one class per kind of failure
        raise ModelFolderError(
            f"model must be readable by onnxruntime; got: {error}"
        ) from error
