"""A trained model as one object and one folder: texts in, labels out.

The folder is enough on another machine, without the data: `config.json`,
`tokenizer.json`, `labels.json` (names, thresholds, task), `model.safetensors` (for
fastText its own `model.bin`), `outside.safetensors` (which texts get no label; folders
without it refuse none) and `training.json` (the record of the training). A model on a
pretrained encoder has that one too, or only its name and checksums. Nothing in it is
executable.

The folder's files as bytes (`pack`, `unpack`) carry a model to other processes and into
pickles.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from textcapsules import __version__
from textcapsules.base.checks import check_decision, read_texts
from textcapsules.base.errors import (
    ConfigError,
    InputError,
    ModelFolderError,
    TextCapsulesError,
)
from textcapsules.base.files import (
    check_regular,
    file_sha256,
    json_bytes,
    write_tensors,
)
from textcapsules.base.sums import (
    RECORD,
    check_sums,
    read_json,
    read_record,
    replace_file,
    write_record,
)
from textcapsules.config import CLASSIC, RunConfig, restore
from textcapsules.model.baselines.classic import ClassicSystem
from textcapsules.model.builder import System, build_system, has_pieces
from textcapsules.model.network import (
    EXTRA,
    PIECES,
    WORDS,
    Network,
    saved_tensors,
)
from textcapsules.model.score import highest, past, score_documents
from textcapsules.model.word_scores import WordScores
from textcapsules.text.encode import Cuts, Encoder, count_words
from textcapsules.text.encoder import (
    ENCODER_FILES,
    EncoderEmbedding,
    SentenceStates,
    read_encoder,
)
from textcapsules.text.encoder_files import SOURCE_FILE
from textcapsules.text.outside import OUTSIDE_FILE, OutsideRule
from textcapsules.text.piece_vectors import PieceVectors
from textcapsules.text.pieces import PieceTokenizer
from textcapsules.text.vocabulary import TextTokenizer

if TYPE_CHECKING:
    from textcapsules.inference.recalibrate import Recalibration
    from textcapsules.reasons.explanation import Explanation

__all__ = [
    "MODEL_FILES",
    "Labels",
    "Prediction",
    "Predictions",
    "Reading",
    "TextClassifier",
    "pack",
    "pick_device",
    "unpack",
]

FORMAT = 1
LABELS_SHOWN = 5  # by repr
TEXTS_SHOWN = 20  # by a notebook
MODEL_FILES = (
    "config.json",
    "tokenizer.json",
    "labels.json",
    "model.safetensors",
    RECORD,
)
SETUP_FILES = MODEL_FILES[:3]  # all that is known before training
FASTTEXT_FILE = "model.bin"  # fastText's, in place of model.safetensors
FORMER = "labels.former.json"  # thresholds before those that reviews gave


class Labels(NamedTuple):
    """The classes in order, the threshold of each, and what the model is for."""

    names: tuple[str, ...]
    thresholds: tuple[float, ...]
    task: str  # "single-label" or "multi-label"
    # Reviews have shown that texts without any score past its threshold have a label.
    at_least_one: bool = False


class Prediction(NamedTuple):
    """The labels of one text, strongest first, and the score of every class.

    `known` of the `words` that the model read are in its vocabulary. Words after the
    first `max_tokens` are not read. Networks that read characters count characters,
    without blanks. A text `outside` the training topics gets no label unless that is
    asked for; its scores are those that it would be judged by.
    """

    labels: tuple[str, ...]
    scores: NDArray[np.float32]  # (J,), in the order of the model's labels
    known: int = 0
    words: int = 0
    names: tuple[str, ...] = ()  # of all classes, in the order of the scores
    outside: bool = False

    def _repr_html_(self) -> str:
        """Show the labels and their scores in a notebook."""
        return Predictions([self])._repr_html_()


class Predictions(list[Prediction]):
    """A list of predictions that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        """Return one row per text: its number, its labels and their scores as bars."""
        from textcapsules.draw.pages import render_predictions

        return render_predictions(self[:TEXTS_SHOWN], len(self))


class Reading(NamedTuple):
    """The scores of some texts, how many words are known, and which are outside."""

    scores: NDArray[np.float32]  # (N, J)
    known: NDArray[np.int64]  # (N,)
    words: NDArray[np.int64]  # (N,), those that were read
    cuts: Cuts  # how much was not read
    outside: NDArray[np.bool_]  # (N,), by the model's rule; none without a rule


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
        tokenizer: TextTokenizer | PieceTokenizer,
        labels: Labels,
        network: System,
        record: dict[str, Any] | None = None,
        rule: OutsideRule | None = None,
    ) -> None:
        self.config, self.tokenizer, self.labels = config, tokenizer, labels
        self.network, self.record, self.rule = network, record or {}, rule
        self.encoder = Encoder(config, tokenizer)

    def __repr__(self) -> str:
        """Return architecture, task, labels and thresholds in one line."""
        names, thresholds = self.labels.names, self.labels.thresholds
        more = ", ..." if len(names) > LABELS_SHOWN else ""
        low, high = min(thresholds), max(thresholds)
        interval = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        return (
            f"TextClassifier({self.config.model.architecture}, {self.labels.task}, "
            f"{len(names)} labels: {', '.join(names[:LABELS_SHOWN])}{more}; "
            f"threshold {interval})"
        )

    @property
    def uses_word_scores(self) -> bool:
        """Whether a linear model of words adds to the network's scores."""
        return isinstance(self.network, Network) and self.network.words is not None

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the word numbers of each text; none where no word of it is known.

        Args:
            texts: a list or column of strings; a single string is refused.
        """
        return self.encoder.encode(read_texts(texts))

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return every class's score for every text, (N, J).

        A text that is empty, or of which no word is known, scores zero everywhere.
        """
        return self.read(texts).scores

    def read(self, texts: Sequence[str]) -> Reading:
        """Return what `scores` does, and how much of the texts was read and known."""
        texts = read_texts(texts)
        ids, cuts = self.encoder.cut_ids(texts)
        scores = score_documents(self.network, self.encoder.documents(texts, ids))
        counts = count_words(ids, self.tokenizer.first_word, self.tokenizer.continues)
        return Reading(scores, *counts, cuts, self.outside(ids))

    def outside(self, ids: Sequence[NDArray[np.int32]]) -> NDArray[np.bool_]:
        """Return which texts (N,), given as word numbers, lie outside the topics.

        A model without a rule says so of none.
        """
        if self.rule is None:
            return np.zeros(len(ids), dtype=bool)
        return self.rule.outside(ids, self.tokenizer)

    def decide(
        self,
        scores: NDArray,
        *,
        multi_label: bool | None = None,
        threshold: float | None = None,
        outside: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.bool_]:
        """Return which classes (N, J) the scores stand for.

        Args:
            scores: (N, J), as `scores` gives them.
            multi_label: all classes past their thresholds, rather than the highest
                alone; by default what the model was trained for.
            threshold: one for all classes, from 0 to 1, in place of the calibrated
                ones.
            outside: (N,), as `read` gives it: such texts get no class. Without it, no
                text is refused.
        """
        if outside is not None:
            decided = self.decide(scores, multi_label=multi_label, threshold=threshold)
            return decided & ~np.asarray(outside, dtype=bool)[:, None]
        check_decision(multi_label, threshold)
        if np.ndim(scores) != 2 or np.shape(scores)[1] != len(self.labels.names):
            raise InputError(
                f"scores must be of shape (N, {len(self.labels.names)}), one column "
                f"per label; got {np.shape(scores)}."
            )
        scores = np.asarray(scores)
        if multi_label is None:
            multi_label = self.labels.task == "multi-label" or threshold is not None
        if multi_label:
            if threshold is not None:
                return past(scores, threshold)
            _, limits, _, at_least_one = self.labels
            return past(scores, limits, at_least_one=at_least_one)
        return highest(scores)[:, None] == np.arange(scores.shape[1])

    @overload
    def predict(  # type: ignore[overload-overlap]  # a string is a sequence too
        self,
        texts: str,
        *,
        multi_label: bool | None = None,
        threshold: float | None = None,
        refuse: bool = True,
    ) -> Prediction: ...
    @overload
    def predict(
        self,
        texts: Sequence[str],
        *,
        multi_label: bool | None = None,
        threshold: float | None = None,
        refuse: bool = True,
    ) -> Predictions: ...
    def predict(
        self,
        texts: str | Sequence[str],
        *,
        multi_label: bool | None = None,
        threshold: float | None = None,
        refuse: bool = True,
    ) -> Prediction | Predictions:
        """Return the labels of one text, or of each text, strongest first.

        Args:
            texts: one string, which gets one prediction, or a list or column of them.
            multi_label: as for `decide`.
            threshold: as for `decide`.
            refuse: give no label to texts outside the training topics; if False, they
                get labels like any other.
        """
        check_decision(multi_label, threshold)
        is_single = isinstance(texts, str)
        read = self.read([texts] if is_single else texts)
        decided = self.decide(
            read.scores,
            multi_label=multi_label,
            threshold=threshold,
            outside=read.outside if refuse else None,
        )
        known, words, outside = (
            each.tolist() for each in (read.known, read.words, read.outside)
        )
        names = self.labels.names
        given = self.names_of_each(read.scores, decided)
        columns = zip(given, read.scores, known, words, outside, strict=True)
        predictions = Predictions(
            Prediction(labels, row, n_known, n_words, names, out)
            for labels, row, n_known, n_words, out in columns
        )
        return predictions[0] if is_single else predictions

    @overload
    def explain(  # type: ignore[overload-overlap]
        self,
        texts: str,
        *,
        method: str | None = None,
        top: int = 10,
        true: Any = None,
        multi_label: bool | None = None,
        threshold: float | None = None,
        refuse: bool = True,
    ) -> "Explanation": ...
    @overload
    def explain(
        self,
        texts: Sequence[str],
        *,
        method: str | None = None,
        top: int = 10,
        true: Any = None,
        multi_label: bool | None = None,
        threshold: float | None = None,
        refuse: bool = True,
    ) -> "list[Explanation]": ...
    def explain(
        self,
        texts: str | Sequence[str],
        *,
        method: str | None = None,
        top: int = 10,
        true: Any = None,
        multi_label: bool | None = None,
        threshold: float | None = None,
        refuse: bool = True,
    ) -> "Explanation | list[Explanation]":
        """Say which phrases spoke for each label of one text, or of each text.

        Args:
            texts: one string, for one `Explanation`; or a list or column of them, for a
                list.
            method: what a strength is; see `textcapsules.explain`, as for all others.
            top: the largest number of phrases per label.
            true: the labels that the text, or each text, should get.
            multi_label: which labels count as predicted; see `decide`.
            threshold: one for all labels, in place of the calibrated ones.
            refuse: as for `predict`.
        """
        from textcapsules.reasons.texts import explain

        decision: dict[str, Any] = {
            "multi_label": multi_label,
            "threshold": threshold,
            "refuse": refuse,
        }
        given: Any = texts
        return explain(self, given, method=method, top=top, true=true, **decision)

    def recalibrate(
        self,
        texts: Sequence[str],
        labels: Sequence[Sequence[str]],
        *,
        force: bool = False,
    ) -> "Recalibration":
        """Choose the thresholds anew on a few texts whose labels are all known.

        They are taken over unless texts left out of the fit are decided worse with
        them; `is_worse` of the result says so. `save` writes them.

        Args:
            texts: ten are enough to gain by.
            labels: all labels of each text; a text may have none.
            force: take them over in any case.
        """
        from textcapsules.inference.recalibrate import apply, recalibrate

        fitted = recalibrate(self, texts, labels)
        if force or not fitted.is_worse:
            apply(self, fitted)
        return fitted

    def names(self, scores: NDArray, chosen: NDArray) -> tuple[str, ...]:
        """Return the names of the chosen classes of one text, strongest first."""
        return self.names_of_each(scores[None], chosen[None])[0]

    def names_of_each(
        self, scores: NDArray, chosen: NDArray[np.bool_]
    ) -> list[tuple[str, ...]]:
        """Return what `names` does of every text, from scores and choices (N, J)."""
        order = np.argsort(-scores, axis=1, kind="stable")
        picked = np.take_along_axis(chosen, order, 1)
        names = (self.labels.names[j] for j in order[picked].tolist())
        return [tuple(islice(names, n)) for n in picked.sum(1).tolist()]

    def save(self, folder: Path | str) -> None:
        """Write the model folder, its record last: a folder that has it is whole."""
        folder = Path(folder)
        self.save_setup(folder)
        weights = folder / weights_file(self.config)
        if isinstance(self.network, ClassicSystem):
            self.network.save(weights)
        else:
            write_tensors(weights, saved_tensors(self.network))
        names = (*setup_files(self.config), weights.name)
        rule = folder / OUTSIDE_FILE
        if self.rule is None:
            rule.unlink(missing_ok=True)
        else:
            self.rule.save(rule)
            names = (*names, OUTSIDE_FILE)
        sums = {name: file_sha256(folder / name) for name in names}
        write_record(folder, self.record, sums)

    def save_setup(self, folder: Path) -> None:
        """Write all that is known before training: options, vocabulary and labels."""
        write_config(folder, self.config)
        self.tokenizer.save(folder / "tokenizer.json")
        encoder = encoder_of(self.network)
        if encoder is not None and not encoder.learns:
            encoder.states.save(folder, embed=self.config.text.embed_encoder)
        self.save_labels(folder)

    def save_labels(self, folder: Path) -> None:
        """Write the labels and thresholds, also into the folder of a finished model."""
        pairs = zip(self.labels.names, self.labels.thresholds, strict=True)
        labels = [{"name": name, "threshold": value} for name, value in pairs]
        values = {"task": self.labels.task, "labels": labels}
        if self.labels.at_least_one:
            values["at_least_one"] = True
        replace_file(folder, "labels.json", json_bytes(values))

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> "TextClassifier":
        """Read a model folder."""
        folder = Path(folder)
        config = read_run_config(folder)
        weights = folder / weights_file(config)
        record, sums = read_record(folder)
        if not record.get("finished", weights.exists()):
            raise ModelFolderError(
                f"{folder} must hold a finished model; got a run broken off before "
                f"{weights.name} was written. Finish it with `textcapsules train "
                f"--resume {folder}`."
            )
        states = None
        if config.text.encoder is not None:
            embedded = config.text.embed_encoder
            tokenizer, states = read_encoder(folder, embedded=embedded)
            tokenizer = tokenizer.cut_by(config.text.encode_by)
        else:
            tokenizer = TextTokenizer.load(folder / "tokenizer.json")
        labels = read_labels(folder / "labels.json")
        # After reading: a file without end would never be summed up.
        check_sums(folder, sums, setup_files(config))
        network = load_network(
            config, tokenizer.n_words, len(labels.names), weights, states
        )
        check_sums(folder, sums, [weights.name])
        rule = None
        if OUTSIDE_FILE in sums or exists(folder / OUTSIDE_FILE):
            rule = OutsideRule.load(folder / OUTSIDE_FILE, tokenizer)
            check_sums(folder, sums, [OUTSIDE_FILE])
        if not isinstance(network, ClassicSystem):
            network.to(pick_device(device)).eval()
        return cls(config, tokenizer, labels, network, record, rule)


def setup_files(config: RunConfig) -> tuple[str, ...]:
    """Return the names of the files that are known before training."""
    if config.text.encoder is None:
        return SETUP_FILES
    files = ENCODER_FILES if config.text.embed_encoder else (SOURCE_FILE,)
    return (*SETUP_FILES, *files)


def encoder_of(network: System) -> EncoderEmbedding | None:
    """Return the pretrained encoder that a network has in place of word vectors."""
    layers = () if isinstance(network, ClassicSystem) else network.children()
    return next((each for each in layers if isinstance(each, EncoderEmbedding)), None)


def encoder_states(network: System) -> SentenceStates | None:
    """Return the encoder states that a network reads in place of word vectors."""
    encoder = encoder_of(network)
    return None if encoder is None else encoder.states


def weights_file(config: RunConfig) -> str:
    """Return the name of the file that holds what was learnt."""
    is_fasttext = config.model.architecture == "fasttext"
    return FASTTEXT_FILE if is_fasttext else "model.safetensors"


def write_config(folder: Path, config: RunConfig) -> None:
    """Write a run's options, also into the folder of a run in progress."""
    replace_file(folder, "config.json", config_json(config))


def config_json(config: RunConfig) -> bytes:
    """Return the content of `config.json`."""
    header = {"format": FORMAT, "textcapsules": __version__}
    return json_bytes({**header, **config.to_dict()})


def read_run_config(folder: Path) -> RunConfig:
    """Read a run's options, and say so if the folder is no model folder."""
    if not exists(folder):
        raise ModelFolderError(
            f"{folder} must be a model folder; got no such folder. Name the folder "
            "that `textcapsules train --out` wrote."
        )
    if not (folder / "config.json").exists():
        raise ModelFolderError(
            f"{folder} must be a model folder; got one without config.json. "
            "Name the folder that `textcapsules train --out` wrote."
        )
    values = read_json(folder / "config.json")
    number = values.pop("format", None)
    values.pop("textcapsules", None)
    if number != FORMAT:
        is_newer = isinstance(number, int) and number > FORMAT
        remedy = "Update textcapsules." if is_newer else "Another program wrote it."
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


def exists(path: Path) -> bool:
    """Tell whether a path exists; a path that the system refuses does not."""
    try:
        return path.exists()
    except (OSError, ValueError):  # such as a name that is too long
        return False


def read_labels(path: Path) -> Labels:
    """Read the classes and their thresholds."""
    values = read_json(path)
    try:
        pairs = [(row["name"], float(row["threshold"])) for row in values["labels"]]
        names, thresholds = zip(*pairs, strict=True)
        at_least_one = values.get("at_least_one", False)
        labels = Labels(names, thresholds, values["task"], at_least_one)
        if not are_valid(labels):
            raise ValueError("names, thresholds or a task that no model has")
        return labels
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(
            f"{path} must list labels with thresholds; got {error!r}. "
            "Restore the folder."
        ) from error


def are_valid(labels: Labels) -> bool:
    """Tell whether names differ, thresholds are numbers and the task is known."""
    return (
        all(isinstance(name, str) for name in labels.names)
        and len(set(labels.names)) == len(labels.names) >= 2
        and all(map(math.isfinite, labels.thresholds))
        and labels.task in ("single-label", "multi-label")
        and isinstance(labels.at_least_one, bool)
    )


def load_network(
    config: RunConfig,
    n_words: int,
    n_classes: int,
    path: Path,
    states: SentenceStates | None = None,
) -> System:
    """Build and fill the network, and name the file if it does not fit."""
    is_classic = config.model.architecture in CLASSIC
    try:
        check_regular(path)
        tensors = {} if is_classic else load_file(path)
        check_finite(tensors)
        extra = tensors.pop(EXTRA, None)  # its words are the vocabulary's last
        words = {
            name.removeprefix(WORDS): tensors.pop(name)
            for name in list(tensors)
            if name.startswith(WORDS)
        }
        n_extra = 0 if extra is None else len(extra)
        network = build_system(
            config,
            n_words=n_words - n_extra,
            n_classes=n_classes,
            extra=extra,
            encoder=None if states is None else embedding_of(config, states, tensors),
        )
        if isinstance(network, ClassicSystem):
            network.load(path)
        else:
            network.load_state_dict(tensors)
            if words:
                network.words = WordScores.from_tensors(words, n_classes=n_classes)
        return network
    except TextCapsulesError:
        raise
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        message = getattr(error, "strerror", None) or str(error)
        reason = message.strip().splitlines()[-1].strip().rstrip(".")
        raise ModelFolderError(
            f"{path} must hold the weights that config.json describes; got: {reason}. "
            "Restore the folder."
        ) from error


def embedding_of(
    config: RunConfig, states: SentenceStates, tensors: Mapping[str, Tensor]
) -> EncoderEmbedding:
    """Return an encoder's states with what a model folder puts beside them."""
    pieces = None
    if has_pieces(config):
        if PIECES not in tensors:
            raise ValueError(f"vectors of pieces without {PIECES!r}")
        rows = tensors[PIECES].long()
        pieces = PieceVectors(rows, size=config.model.piece_size)
    return EncoderEmbedding(states, pieces)


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights with a NaN or an infinity: all scores would be NaN."""
    for name, tensor in tensors.items():
        # A NaN is both minimum and maximum; `isfinite` of all numbers takes longer.
        if (
            tensor.is_floating_point()
            and tensor.numel()
            and not torch.stack(tensor.aminmax()).isfinite().all()
        ):
            raise ValueError(f"numbers that are not finite in {name!r}")


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
