"""A trained model as one object and one folder: texts in, labels out.

The folder is enough on another machine, without the data: `config.json`,
`tokenizer.json`, `labels.json` (names, thresholds, task), `model.safetensors` (for
fastText its own `model.bin`) and `training.json` (the record of its making). Nothing in
it is executable.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file

from textcapsules import __version__
from textcapsules.config import RunConfig, restore
from textcapsules.errors import ConfigError, ModelFolderError
from textcapsules.files import write_json, write_tensors
from textcapsules.metrics import highest
from textcapsules.model.builder import System, build_system
from textcapsules.model.rivals.classic import ClassicSystem
from textcapsules.model.score import score_documents
from textcapsules.text.encode import Encoder
from textcapsules.text.vocabulary import TextTokenizer

__all__ = [
    "MODEL_FILES",
    "Labels",
    "Prediction",
    "Reading",
    "TextClassifier",
    "pick_device",
]

FORMAT = 1
MODEL_FILES = (
    "config.json",
    "tokenizer.json",
    "labels.json",
    "model.safetensors",
    "training.json",
)
FASTTEXT_FILE = "model.bin"  # fastText's, in place of model.safetensors


class Labels(NamedTuple):
    """The classes in order, the threshold of each, and what the model is for."""

    names: tuple[str, ...]
    thresholds: tuple[float, ...]
    task: str  # "single-label" or "multi-label"


class Prediction(NamedTuple):
    """The labels of one text, strongest first, and the score of every class.

    `known` of the `words` that the model read are in its vocabulary. Words behind the
    first `max_tokens` are not read. Networks that read characters count those, blanks
    left out.
    """

    labels: tuple[str, ...]
    scores: NDArray[np.float32]  # (J,), in the order of the model's labels
    known: int = 0
    words: int = 0


class Reading(NamedTuple):
    """The scores of some texts, and how many of their words are known."""

    scores: NDArray[np.float32]  # (N, J)
    known: NDArray[np.int64]  # (N,)
    words: NDArray[np.int64]  # (N,), those that were read


def pick_device(name: str) -> torch.device:
    """Return the device called `name`; `auto` takes a GPU where there is one."""
    has_gpu = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if has_gpu else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N; got {name!r}.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device must be one this machine has; got {name!r}. Use cpu."
        )
    return device


class TextClassifier:
    """A network, or another system, with all it needs to read raw text."""

    def __init__(
        self,
        config: RunConfig,
        tokenizer: TextTokenizer,
        labels: Labels,
        network: System,
        record: dict[str, Any] | None = None,
    ) -> None:
        self.config, self.tokenizer, self.labels = config, tokenizer, labels
        self.network, self.record = network, record or {}
        self.encoder = Encoder(config, tokenizer)

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return word numbers a text; none where no word of it is known."""
        return self.encoder.encode(texts)

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return every class's score for every text, (N, J).

        A text that is empty, or of which no word is known, scores zero everywhere.
        """
        return self.read(texts).scores

    def read(self, texts: Sequence[str]) -> Reading:
        """Return what `scores` does, and how many words of each text are known."""
        documents, counts = self.encoder.encode_counted(texts)
        return Reading(score_documents(self.network, documents), *counts)

    def decide(
        self,
        scores: NDArray,
        *,
        multi_label: bool | None = None,
        threshold: float | None = None,
    ) -> NDArray[np.bool_]:
        """Return which classes (N, J) the scores stand for.

        Args:
            scores: (N, J).
            multi_label: all classes past their thresholds, rather than the highest
                alone; by default what the model was trained for.
            threshold: one for all classes, in place of the calibrated ones.
        """
        if multi_label is None:
            multi_label = self.labels.task == "multi-label" or threshold is not None
        if multi_label:
            least = self.labels.thresholds if threshold is None else threshold
            past = scores >= np.asarray(least, dtype=scores.dtype)
            return past & (scores > 0).any(1, keepdims=True)
        return highest(scores)[:, None] == np.arange(scores.shape[1])

    def predict(
        self,
        texts: Sequence[str],
        *,
        multi_label: bool | None = None,
        threshold: float | None = None,
    ) -> list[Prediction]:
        """Return the labels of each text (see `decide`), strongest first."""
        read = self.read(texts)
        decided = self.decide(read.scores, multi_label=multi_label, threshold=threshold)
        counts = zip(read.known.tolist(), read.words.tolist(), strict=True)
        return [
            Prediction(self.names(row, chosen), row, *count)
            for row, chosen, count in zip(read.scores, decided, counts, strict=True)
        ]

    def names(self, scores: NDArray, chosen: NDArray) -> tuple[str, ...]:
        """Return the names of the chosen classes of one text, strongest first."""
        order = np.argsort(-scores, kind="stable")
        return tuple(self.labels.names[j] for j in order if chosen[j])

    def save(self, folder: Path | str) -> None:
        """Write the model folder, weights last: a folder that has them is whole."""
        folder = Path(folder)
        self.save_setup(folder)
        write_json(folder / "training.json", self.record)
        weights = folder / weights_file(self.config)
        if isinstance(self.network, ClassicSystem):
            self.network.save(weights)
        else:
            write_tensors(weights, self.network.state_dict())

    def save_setup(self, folder: Path) -> None:
        """Write all that is known before training: options, vocabulary and labels."""
        marks = {"format": FORMAT, "textcapsules": __version__}
        write_json(folder / "config.json", {**marks, **self.config.to_dict()})
        self.tokenizer.save(folder / "tokenizer.json")
        pairs = zip(self.labels.names, self.labels.thresholds, strict=True)
        labels = [{"name": name, "threshold": least} for name, least in pairs]
        write_json(folder / "labels.json", {"task": self.labels.task, "labels": labels})

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> "TextClassifier":
        """Read a model folder."""
        folder = Path(folder)
        config = read_run_config(folder)
        weights = folder / weights_file(config)
        if not weights.is_file():
            raise ModelFolderError(
                f"{folder} must hold a finished model; got a run without "
                f"{weights.name}. Finish it with `textcapsules train --resume "
                f"{folder}`."
            )
        tokenizer = TextTokenizer.load(folder / "tokenizer.json")
        labels = read_labels(folder / "labels.json")
        network = build_system(
            config, n_words=tokenizer.n_words, n_classes=len(labels.names)
        )
        load_weights(network, weights)
        record = read_json(folder / "training.json")
        if not isinstance(network, ClassicSystem):
            network.to(pick_device(device)).eval()
        return cls(config, tokenizer, labels, network, record)


def weights_file(config: RunConfig) -> str:
    """Return the name of the file that holds what was learnt."""
    is_fasttext = config.model.architecture == "fasttext"
    return FASTTEXT_FILE if is_fasttext else "model.safetensors"


def read_run_config(folder: Path) -> RunConfig:
    """Read a run's options, and say so if the folder is none of ours."""
    if not (folder / "config.json").is_file():
        raise ModelFolderError(
            f"{folder} must be a model folder; got one without config.json. "
            "Name the folder that `textcapsules train --out` wrote."
        )
    values = read_json(folder / "config.json")
    number = values.pop("format", None)
    values.pop("textcapsules", None)
    if number != FORMAT:
        newer = isinstance(number, int) and number > FORMAT
        remedy = "Update textcapsules." if newer else "Another program wrote it."
        raise ModelFolderError(
            f"{folder / 'config.json'} must be of format {FORMAT}; got {number!r}. "
            + remedy
        )
    try:
        return restore(values)
    except (ConfigError, TypeError) as error:
        raise ModelFolderError(
            f"{folder / 'config.json'} must hold a run's options; got: {error}"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of the model folder."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFolderError(
            f"{path} must be a readable JSON file; got {error}. Restore the folder."
        ) from error
    if not isinstance(value, dict):
        raise ModelFolderError(f"{path} must hold a JSON object; got {value!r:.40}.")
    return value


def read_labels(path: Path) -> Labels:
    """Read the classes and their thresholds."""
    values = read_json(path)
    try:
        pairs = [(row["name"], float(row["threshold"])) for row in values["labels"]]
        names, thresholds = zip(*pairs, strict=True)
        labels = Labels(names, thresholds, values["task"])
        if not are_sound(labels):
            raise ValueError("names, thresholds or a task that no model has")
        return labels
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(
            f"{path} must list labels with thresholds; got {error!r}. "
            "Restore the folder."
        ) from error


def are_sound(labels: Labels) -> bool:
    """Tell whether labels can be a model's: different names, numbers, a known task."""
    return (
        all(isinstance(name, str) for name in labels.names)
        and len(set(labels.names)) == len(labels.names) >= 2
        and all(map(math.isfinite, labels.thresholds))
        and labels.task in ("single-label", "multi-label")
    )


def load_weights(network: System, path: Path) -> None:
    """Fill the network, and name the file if it does not fit."""
    try:
        if isinstance(network, ClassicSystem):
            network.load(path)
        else:
            network.load_state_dict(load_file(path))
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1].strip().rstrip(".")
        raise ModelFolderError(
            f"{path} must hold the weights that config.json describes; got: {reason}. "
            "Restore the folder."
        ) from error
