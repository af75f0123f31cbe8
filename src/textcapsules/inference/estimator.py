"""`CapsuleClassifier`: the scikit-learn face of a capsule network for text.

    classifier = CapsuleClassifier(random_state=0).fit(texts, topics)
    classifier.predict(["charged twice"])                    # ['billing']
    classifier.predict(new_texts, multi_label=True)          # sets of labels
    classifier.explain(["charged twice"])

The length of a class capsule lies between 0 and 1: how sure the model is of this class
alone. The lengths of a text are no distribution. `decision_function` returns them as
they are. `predict_proba` returns them as they are if several labels are asked for, and
divided by their sum if one is.

`read_target` brings the labels that callers of scikit-learn hold to one form: one value
per text; or several, as a list, tuple or set per text, or as a 0/1 matrix with one
column per class.
"""

import math
import tempfile
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from textcapsules.base.checks import check_decision, read_column, read_texts
from textcapsules.base.errors import ConfigError, DataError, ModelFolderError
from textcapsules.base.progress import training_bar
from textcapsules.config import (
    AUTO,
    ENCODER_PRESET,
    ENCODER_PRESETS,
    SECTIONS,
    RunConfig,
    default_preset,
    leaves_encoder_open,
    preset,
)
from textcapsules.data.example import Corpus, Example
from textcapsules.data.split import hold_out
from textcapsules.model.classifier import TextClassifier, pack, unpack
from textcapsules.reasons.explanation import Explanation
from textcapsules.reasons.texts import explain
from textcapsules.training.folder import check_folder, check_unlocked, clear, locked
from textcapsules.training.run import train

__all__ = ["CapsuleClassifier", "Target", "class_names", "read_target"]


class CapsuleClassifier(ClassifierMixin, BaseEstimator):
    """A capsule network over raw texts.

    A parameter left at None is what the preset says.

    Args:
        preset: a named set of options: "best", "encoder-frozen", "encoder",
            "encoder-tuned", "paper", "released" or "sabour"; None: "encoder-frozen"
            with an encoder, else "best".
        epochs: the largest number of passes over the training texts.
        batch_size: texts in a batch.
        learning_rate: Adam's step.
        joined: training texts made by joining two, per single text.
        vectors: a file of word vectors (.npz, word2vec, GloVe).
        encoder: a pretrained encoder in place of word vectors: a folder, or a name.
            "auto": the installed one if it knows the language of the texts and can read
            them in minutes, unless a preset, word vectors or an option of words is
            given; None: words alone.
        max_tokens: how many tokens of a text are read.
        options: any further options of the configuration, by name, as
            ``{"capsule_types": 16, "patience": 3}``.
        multi_label: whether `predict` gives all labels past their thresholds, or only
            the strongest; by default as in `y`.
        random_state: seed of weights, order, dropout and joined texts.
        device: "auto", "cpu", "cuda" or "cuda:N".
        verbose: show a progress bar, or one line per epoch if there is no terminal.

    Attributes:
        classes_: the labels, in the order of all columns.
        thresholds_: the length from which each label counts; may be set.
        class_prior_: each label's share of the labels of the training texts.
        target_form_: the form of `y`: "single", "sets" or "matrix".
        model_: the trained `TextClassifier`.
    """

    model_: TextClassifier
    classes_: NDArray  # (J,)
    target_form_: str  # "single", "sets" or "matrix"
    class_prior_: NDArray  # (J,)

    def __init__(
        self,
        *,
        preset: str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        joined: float | None = None,
        vectors: str | None = None,
        encoder: str | None = AUTO,
        max_tokens: int | None = None,
        options: Mapping[str, Any] | None = None,
        multi_label: bool | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.joined = joined
        self.vectors = vectors
        self.encoder = encoder
        self.max_tokens = max_tokens
        self.options = options
        self.multi_label = multi_label
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "CapsuleClassifier":
        """Train on texts and their labels.

        A part of them (option `dev_fraction`) is held out to choose the epoch and the
        thresholds.

        Args:
            X: texts.
            y: one label per text, of any hashable kind; or a list, tuple or set of
                labels per text; or a 0/1 matrix with one column per class. A list of
                equally long lists of zeros and ones is such a matrix.
        """
        texts = self._read_texts(X)
        target = read_target(y, len(texts))
        if len(target.classes) < 2:
            raise ValueError(
                "y must have more than one class to tell apart; got "
                f"{target.classes.tolist()}. Add texts of another class."
            )
        several = target.form != "single" or bool(self.multi_label)
        options = self._options()
        encoder, seed = options.get("encoder"), seed_of(self.random_state)
        config, on_encoder = (
            make_config(
                self.preset or base,
                options,
                several=several,
                seed=seed,
                device=self.device,
            )
            for base in (default_preset(encoder), ENCODER_PRESET)
        )
        corpus = make_corpus(texts, target, config)
        try:
            with (
                tempfile.TemporaryDirectory(prefix="textcapsules-") as folder,
                training_bar(quiet=not self.verbose) as watch,
            ):
                place = Path(folder) / "model"
                model = train(
                    config, place, corpus=corpus, on_encoder=on_encoder, **watch
                )
        except DataError as error:
            raise ValueError(str(error)) from error
        self.model_, self.classes_ = model, target.classes
        self.target_form_ = target.form
        counts = np.bincount(
            [place for places in target.places for place in places],
            minlength=len(target.classes),
        )
        self.class_prior_ = counts / counts.sum()
        return self

    def _read_texts(self, X: Any) -> list[str]:
        return read_texts(X)

    def _options(self) -> dict[str, Any]:
        """Return the options of the configuration that were given."""
        named = ("epochs", "batch_size", "learning_rate", "joined", "vectors")
        given = {
            name: getattr(self, name) for name in (*named, "encoder", "max_tokens")
        }
        given = {name: value for name, value in given.items() if value is not None}
        options = {**(self.options or {}), **given}
        others = {name: options[name] for name in options if name != "encoder"}
        encoder = options.get("encoder")
        is_open = self.preset in ENCODER_PRESETS or (
            self.preset is None and leaves_encoder_open(by_section(others))
        )
        # The command line's word for none is understood too.
        return (
            others
            if encoder == "none" or (encoder == AUTO and not is_open)
            else options
        )

    def predict(
        self,
        X: Any,
        multi_label: bool | None = None,
        threshold: float | None = None,
        refuse: bool = True,
    ) -> NDArray:
        """Return the label of each text, or all its labels.

        Args:
            X: texts.
            multi_label: give all labels past their thresholds, which may be none; by
                default as in the constructor, or else as in `y`.
            threshold: one for all labels, in place of `thresholds_`.
            refuse: give no label to texts outside the training topics, where several
                are asked for.

        Returns:
            Labels (N,). With `multi_label`, tuples of labels, strongest first, in an
            array (N,) of objects; or a 0/1 matrix (N, J) if `y` was one. If one label
            is asked for, every text gets one, as scikit-learn demands: a text without a
            known word the most frequent one. `outside` tells which to leave out.
        """
        check_decision(multi_label, threshold)
        check_is_fitted(self)
        reading = self.model_.read(self._read_texts(X))
        lengths = reading.scores
        if not self._several(multi_label, threshold):
            return self.classes_[self._shares(lengths).argmax(1)]
        chosen = self.model_.decide(
            lengths,
            multi_label=True,
            threshold=threshold,
            outside=reading.outside if refuse else None,
        )
        if self.target_form_ == "matrix":
            return chosen.astype(int)
        return self._label_sets(lengths, chosen)

    def outside(self, X: Any) -> NDArray[np.bool_]:
        """Return which texts (N,) lie outside the training topics."""
        check_is_fitted(self)
        ids, _ = self.model_.encoder.cut_ids(self._read_texts(X))
        return self.model_.outside(ids)

    def _label_sets(self, lengths: NDArray, chosen: NDArray) -> NDArray:
        """Return the chosen labels of each text, strongest first."""
        labels, sets = self.classes_.tolist(), np.empty(len(lengths), dtype=object)
        for row, order in enumerate(np.argsort(-lengths, axis=1, kind="stable")):
            sets[row] = tuple(labels[j] for j in order if chosen[row, j])
        return sets

    def _several(
        self, multi_label: bool | None = None, threshold: float | None = None
    ) -> bool:
        """Tell whether several labels are asked for: here, at the start, or by `y`."""
        for asked in (multi_label, None if threshold is None else True):
            if asked is not None:
                return asked
        if self.multi_label is not None:
            return self.multi_label
        return self.target_form_ != "single"

    def _lengths(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self)
        return self.model_.scores(self._read_texts(X))  # (N, J)

    def _shares(self, lengths: NDArray) -> NDArray[np.float64]:
        """Return lengths divided by their sum; the prior where all are zero."""
        lengths = lengths.astype(np.float64)
        total = lengths.sum(1, keepdims=True)
        known = total > 0
        return np.where(known, lengths / np.where(known, total, 1), self.class_prior_)

    def predict_proba(self, X: Any, multi_label: bool | None = None) -> NDArray:
        """Return numbers between 0 and 1, (N, J), in the order of `classes_`.

        For one label per text: the capsules' lengths divided by their sum; a text
        without a known word gets the labels' shares of the training texts. For several:
        each capsule's length, zero for such a text.
        """
        lengths = self._lengths(X)
        if self._several(multi_label):
            return np.clip(lengths, 0, 1).astype(np.float64)
        return self._shares(lengths)

    def decision_function(self, X: Any) -> NDArray:
        """Return the capsules' lengths, (N, J).

        For two classes and one label per text it is, as usual in scikit-learn, one
        number per text, above zero for `classes_[1]`: the difference of their shares.
        """
        lengths = self._lengths(X)
        if len(self.classes_) > 2 or self._several():
            return lengths.astype(np.float64)
        shares = self._shares(lengths)
        return shares[:, 1] - shares[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of texts whose label, or set of labels, is right.

        The default of `predict` is compared with `y`; a set counts as a whole.
        """
        predicted, labels = self.predict(X), self.classes_.tolist()
        target = read_target(y, len(predicted))
        if target.form == "matrix" and len(target.classes) == len(labels):
            names = labels  # columns are in the order of the classes
        else:
            names = target.classes.tolist()
        truths = [{names[place] for place in places} for places in target.places]
        if predicted.ndim == 2:
            guesses = [{labels[j] for j in np.flatnonzero(row)} for row in predicted]
        elif self._several():
            guesses = [set(row) for row in predicted]
        else:
            guesses = [{label} for label in predicted.tolist()]
        right = [guess == truth for guess, truth in zip(guesses, truths, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def explain(self, X: Any, **options: Any) -> list[Explanation]:
        """Return which phrases of each text spoke for each label.

        Args:
            X: texts.
            options: as for `textcapsules.explain`: method, top, true and so on.
        """
        check_is_fitted(self)
        return explain(self.model_, self._read_texts(X), **options)

    @property
    def thresholds_(self) -> NDArray[np.float64]:
        """The length from which each label counts; set a number, a list or a dict."""
        check_is_fitted(self)
        values = np.array(self.model_.labels.thresholds)
        values.flags.writeable = False  # a change in place would be lost
        return values

    @thresholds_.setter
    def thresholds_(self, value: float | ArrayLike | Mapping[Any, float]) -> None:
        check_is_fitted(self)
        labels = self.model_.labels
        if isinstance(value, Mapping):
            known = dict(zip(self.classes_.tolist(), labels.thresholds, strict=True))
            if unknown := [label for label in value if label not in known]:
                raise ValueError(
                    f"thresholds_ must be of the labels {list(known)}; got "
                    f"{unknown[0]!r}."
                )
            value = list({**known, **value}.values())
        numbers = np.asarray(value, dtype=float)
        if (
            numbers.shape not in ((), (len(labels.names),))
            or not ((numbers >= 0) & (numbers <= 1)).all()  # NaN fails too
        ):
            raise ValueError(
                f"thresholds_ must be a number from 0 to 1 or {len(labels.names)} of "
                f"them; got {value!r:.60}."
            )
        thresholds = np.broadcast_to(numbers, len(labels.names)).tolist()
        self.model_.labels = labels._replace(thresholds=tuple(thresholds))

    def to_model(self) -> TextClassifier:
        """Return the trained model; its record tells the form of the labels.

        Labels must be strings or numbers; for others, use joblib.
        """
        check_is_fitted(self)
        classes = self.classes_.tolist()
        for label in classes:
            if not isinstance(label, str | int | float):
                raise ValueError(
                    "labels must be strings or numbers to be saved as JSON; got "
                    f"{label!r:.40}. Use joblib.dump."
                )
        self.model_.record["estimator"] = {
            "classes": classes,
            "target_form": self.target_form_,
            "class_prior": self.class_prior_.tolist(),
            "multi_label": self.multi_label,
        }
        return self.model_

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write a model folder, which the command line and `load` read."""
        model, folder = self.to_model(), Path(folder)
        check_unlocked(folder)
        check_folder(folder, overwrite)
        with locked(folder):
            clear(folder)
            model.save(folder)

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> Self:
        """Read what `save` wrote, or any model folder of the command line."""
        return cls.of(TextClassifier.load(folder, device), device)

    @classmethod
    def of(cls, model: TextClassifier, device: str = "auto") -> Self:
        """Return a fitted estimator around a trained model."""
        names, several = model.labels.names, model.labels.task == "multi-label"
        known = {
            "classes": names,
            "target_form": "sets" if several else "single",
            "class_prior": [1 / len(names)] * len(names),
            "multi_label": None,
            **model.record.get("estimator", {}),
        }
        made = cls()
        made.set_params(
            preset=model.config.preset, multi_label=known["multi_label"], device=device
        )
        made.model_, made.classes_ = model, np.array(known["classes"])
        made.target_form_ = known["target_form"]
        made.class_prior_ = np.array(known["class_prior"])
        if not len(made.classes_) == len(made.class_prior_) == len(names):
            raise ModelFolderError(
                f"training.json must describe {len(names)} labels; got "
                f"{len(made.classes_)}. Restore the folder."
            )
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = cast("dict[str, Any]", super().__getstate__())
        if "model_" in state:
            state = {**state, "model_": pack(self.model_)}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = {**state, "model_": unpack(state["model_"], state["device"])}
        super().__setstate__(state)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        tags.classifier_tags.multi_label = True
        return tags


SEVERAL = (list, tuple, set, frozenset, np.ndarray)


class Target(NamedTuple):
    """What `y` says: the classes in order, and the places of each text's classes."""

    form: str  # "single", "sets" or "matrix"
    classes: NDArray  # (J,)
    places: list[tuple[int, ...]]  # one tuple per text


def read_target(y: Any, n_texts: int) -> Target:
    """Read the labels of each text; the form of `y` tells if there may be several."""
    if y is None:
        raise ValueError(
            "y must be the labels of the texts; got None. CapsuleClassifier requires "
            "y to be passed, but the target y is None."
        )
    values, names = read_column(y, "y"), getattr(y, "columns", None)
    if getattr(values, "ndim", 1) == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Change the "
            "shape of y to (n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
        values = values[:, 0]
    if len(values) != n_texts:
        raise ValueError(
            f"y must have an entry for each text, {n_texts}; got {len(values)}. "
            "Found input variables with inconsistent numbers of samples."
        )
    if getattr(values, "ndim", 1) > 1 or is_matrix(values):
        return matrix_target(np.asarray(values), names)
    if any(isinstance(entry, SEVERAL) for entry in values):
        return set_target(list(values))
    return single_target(values)


def is_matrix(values: Sequence[Any]) -> bool:
    """Tell whether all rows hold zeros and ones and have one length above 1."""
    if not all(isinstance(row, list | np.ndarray) and len(row) > 1 for row in values):
        return False
    return len({len(row) for row in values}) == 1 and all(
        is_zero_or_one(cell) for row in values for cell in row
    )


def is_zero_or_one(cell: Any) -> bool:
    """Tell whether a 0/1 matrix may hold a value."""
    return isinstance(cell, Number | np.bool_) and cell in (0, 1)


def matrix_target(values: NDArray, names: Any) -> Target:
    """Read a matrix with one column per class, called by its name or its number."""
    if values.ndim != 2 or not np.isin(values, (0, 1)).all():
        raise ValueError(
            "y must be one label per text, a list of labels per text, or a matrix of 0 "
            f"and 1 with one column per class; got an array of shape {values.shape} "
            "with other values. Multioutput and continuous targets are not supported."
        )
    n_classes = values.shape[1]
    classes = np.arange(n_classes) if names is None else np.asarray(list(names))
    return Target(
        "matrix", classes, [tuple(np.flatnonzero(row).tolist()) for row in values]
    )


def set_target(rows: list[Any]) -> Target:
    """Read a list, tuple or set of labels per text, which may be empty."""
    for place, row in enumerate(rows):
        if not isinstance(row, SEVERAL):
            raise ValueError(
                "y must have a list of labels for each text if it has one for any; got "
                f"{row!r:.40} at place {place}. Put it in a list."
            )
        check_labels(row, f" at place {place}")
    classes, place_of = ordered_classes([label for row in rows for label in row])
    places = [tuple(sorted({place_of[label] for label in row})) for row in rows]
    return Target("sets", classes, places)


def single_target(values: Any) -> Target:
    """Read one label per text."""
    check_labels(values, "")
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        check_classification_targets(values)
    classes, place_of = ordered_classes(list(values))
    return Target("single", classes, [(place_of[label],) for label in values])


def check_labels(labels: Iterable[Any], where: str) -> None:
    """Refuse missing labels, and values that cannot be labels."""
    for place, label in enumerate(labels):
        # Comparing pandas.NA gives neither true nor false.
        missing = label is None or type(label).__name__ in ("NAType", "NaTType")
        if missing or (isinstance(label, float) and not math.isfinite(label)):
            raise ValueError(
                f"y must not have missing labels; got {label!r}"
                f"{where or f' at place {place}'}. Drop such texts (no NaN or inf)."
            )
        if not isinstance(label, Hashable):
            raise ValueError(
                f"y must have labels that can be told apart; got {label!r:.40}"
                f"{where or f' at place {place}'}. Use strings or whole numbers."
            )


def ordered_classes(labels: list[Any]) -> tuple[NDArray, dict[Any, int]]:
    """Return the different labels in order, and the place of each."""
    different = list(dict.fromkeys(labels))
    try:
        different.sort()
    except TypeError:  # labels of several types: any order that is always the same
        different.sort(key=lambda label: (type(label).__name__, repr(label)))
    kinds = {type(label) for label in different}
    plain = len(kinds) == 1 and kinds <= {str, int, float, bool}
    if plain or all(isinstance(label, np.generic) for label in different):
        classes = np.array(different)
    else:
        classes = np.empty(len(different), dtype=object)
        classes[:] = different
    return classes, {label: place for place, label in enumerate(different)}


def class_names(classes: NDArray) -> tuple[str, ...]:
    """Return a name for each class, all different: its text, or else its form in code.

    >>> class_names(np.array([1, 2])), class_names(np.array([1, "1"], dtype=object))
    (('1', '2'), ('1', "'1'"))
    """
    names = tuple(str(label) for label in classes)
    if len(set(names)) == len(names):
        return names
    return tuple(repr(label) for label in classes.tolist())


# Options that describe files or follow from the arguments; callers may not set them.
NOT_OPTIONS = (
    *("source", "data_dir", "fold", "dev", "test", "add"),
    *("seed", "device", "task"),
)


def make_config(
    name: str, options: Mapping[str, Any], *, several: bool, seed: int, device: str
) -> RunConfig:
    """Return a preset with some options changed; names tell their sections."""
    sections: dict[str, dict[str, Any]] = {
        "data": {"source": "texts in memory"},
        # The folder is a temporary one: there is nothing to resume.
        "train": {"checkpoint_seconds": 1e9, "seed": seed, "device": device},
    }
    if several:
        sections["train"]["task"] = "multi-label"
    for section, values in by_section(options).items():
        sections[section] = {**sections.get(section, {}), **values}
    return preset(name).replace(**sections)


def by_section(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return options by the sections that they belong to."""
    places = {
        spec.name: section
        for section, kind in SECTIONS.items()
        for spec in fields(kind)
        if spec.name not in NOT_OPTIONS
    }
    sections: dict[str, dict[str, Any]] = {}
    for option, value in options.items():
        if option not in places:
            names = ", ".join(sorted(places))
            raise ConfigError(f"options must be among {names}; got {option!r}.")
        sections.setdefault(places[option], {})[option] = value
    return sections


def seed_of(random_state: Any) -> int:
    """Return the seed that a `random_state` of scikit-learn stands for."""
    if isinstance(random_state, int | np.integer) and not isinstance(
        random_state, bool
    ):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def make_corpus(texts: list[str], target: Target, config: RunConfig) -> Corpus:
    """Return texts and labels as a corpus, its dev set held out by class."""
    names, data = class_names(target.classes), config.data
    examples = [
        Example(text, tuple(names[place] for place in places))
        for text, places in zip(texts, target.places, strict=True)
    ]
    kept, held = hold_out(target.places, data.dev_fraction, data.split_seed)
    return Corpus(
        name="texts",
        labels=names,
        train=[examples[row] for row in kept],
        dev=[examples[row] for row in held],
        test=[],
        task="single-label" if target.form == "single" else "multi-label",
        rule="words",
        facts={"title": "texts in memory", "seed": data.split_seed},
    )
