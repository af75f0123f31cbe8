"""Labels as callers of scikit-learn hold them, brought to one form.

They are one value per text; or several, as a list, tuple or set per text, or as a 0/1
matrix with one column per class.

A run whose texts lie in memory.
"""

import math
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from textcapsules.base.checks import read_column
from textcapsules.base.errors import ConfigError
from textcapsules.config import SECTIONS, RunConfig, preset
from textcapsules.data.example import Corpus, Example
from textcapsules.data.split import hold_out

__all__ = [
    "Target",
    "class_names",
    "make_config",
    "make_corpus",
    "read_target",
    "seed_of",
]

SEVERAL = (list, tuple, set, frozenset, np.ndarray)


class Target(NamedTuple):
    """What `y` says: the classes in order, and the places of each text's own."""

    form: str  # "single", "sets" or "matrix"
    classes: NDArray  # (J,)
    places: list[tuple[int, ...]]  # one a text


def read_target(y: Any, n_texts: int) -> Target:
    """Return what `y` says of each text, one label or several told by its form."""
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
    """Tell rows of zeros and ones, all of one length above 1, from lists of labels."""
    if not all(isinstance(row, list | np.ndarray) and len(row) > 1 for row in values):
        return False
    return len({len(row) for row in values}) == 1 and all(
        is_zero_or_one(cell) for row in values for cell in row
    )


def is_zero_or_one(cell: Any) -> bool:
    """Tell what a 0/1 matrix may hold."""
    return isinstance(cell, Number | np.bool_) and cell in (0, 1)


def matrix_target(values: NDArray, names: Any) -> Target:
    """Read a matrix with a column a class, which goes by its name or its number."""
    if values.ndim != 2 or not np.isin(values, (0, 1)).all():
        raise ValueError(
            "y must be one label a text, a list of labels a text, or a matrix of 0 and "
            f"1 with a column a class; got an array of shape {values.shape} with other "
            "values. Multioutput and continuous targets are not supported."
        )
    n_classes = values.shape[1]
    classes = np.arange(n_classes) if names is None else np.asarray(list(names))
    return Target(
        "matrix", classes, [tuple(np.flatnonzero(row).tolist()) for row in values]
    )


def set_target(rows: list[Any]) -> Target:
    """Read a list, tuple or set of labels a text, which may be empty."""
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
    """Read one label a text."""
    check_labels(values, "")
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        check_classification_targets(values)
    classes, place_of = ordered_classes(list(values))
    return Target("single", classes, [(place_of[label],) for label in values])


def check_labels(labels: Iterable[Any], where: str) -> None:
    """Refuse what is missing, or cannot be a label."""
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
    except TypeError:  # of several kinds: any order that is always the same
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


# What describes the caller's texts or their place, and is not the caller's to set.
NOT_OPTIONS = ("source", "data_dir", "fold", "dev", "test", "seed", "device", "task")


def make_config(
    name: str, options: Mapping[str, Any], *, several: bool, seed: int, device: str
) -> RunConfig:
    """Return a preset with options changed, each found in its section by its name."""
    sections: dict[str, dict[str, Any]] = {
        "data": {"source": "texts in memory"},
        # The folder is a temporary one: there is nothing to resume.
        "train": {"checkpoint_seconds": 1e9, "seed": seed, "device": device},
    }
    if several:
        sections["train"]["task"] = "multi-label"
    places = {
        spec.name: section
        for section, kind in SECTIONS.items()
        for spec in fields(kind)
        if spec.name not in NOT_OPTIONS
    }
    for option, value in options.items():
        if option not in places:
            names = ", ".join(sorted(places))
            raise ConfigError(f"options must be among {names}; got {option!r}.")
        sections.setdefault(places[option], {})[option] = value
    return preset(name).replace(**sections)


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
