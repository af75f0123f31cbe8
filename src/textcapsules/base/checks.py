"""Checks of arguments given in Python, the same for every way to predict.

Texts are a list, a tuple, a numpy array, or a column of pandas, polars or Arrow.
"""

from collections.abc import Iterable, Mapping
from numbers import Number, Real
from typing import Any

import numpy as np

from textcapsules.base.errors import ConfigError, InputError

__all__ = ["check_decision", "check_threshold", "read_column", "read_texts"]


def read_texts(texts: Any, name: str = "texts") -> list[str]:
    """Return the texts as a list of strings; refuse anything else."""
    values = read_column(texts, name)
    if getattr(values, "ndim", 1) == 2 and values.shape[1] == 1:  # a single column
        values = values[:, 0]
    if getattr(values, "ndim", 1) != 1:
        raise InputError(
            f"{name} must be one column of strings; got shape {values.shape}. "
            "Choose the column that holds the texts."
        )
    entries = list(values)
    for row, text in enumerate(entries):
        if not isinstance(text, str):
            raise InputError(
                f"{name} must be strings; got {text!r:.40} at place {row}. "
                "Fill in what is missing, as with ''."
            )
    return [str(text) for text in entries]  # numpy's strings become plain ones


def read_column(values: Any, name: str) -> Any:
    """Return the values as a list or array; refuse what has no order."""
    if values is None or isinstance(values, str | bytes | Mapping | set | Number):
        kind = "a single string" if isinstance(values, str) else type(values).__name__
        raise InputError(
            f"{name} must be a list or column, one entry per text; got {kind}. "
            "Put it in a list."
        )
    if hasattr(values, "columns"):  # a data frame, which iterates over its names
        return values.to_numpy()
    if hasattr(values, "to_pylist"):  # an Arrow array, which has its own scalars
        return values.to_pylist()
    if hasattr(values, "toarray"):  # a sparse matrix
        return values.toarray()
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_numpy"):  # a column of pandas or polars
        return np.asarray(values.to_numpy(), dtype=object)
    if hasattr(values, "__array__"):
        return np.asarray(values)
    if not isinstance(values, Iterable):
        raise InputError(
            f"{name} must be a list or column, one entry per text; got "
            f"{type(values).__name__}. Put it in a list."
        )
    return list(values)


def check_threshold(threshold: Any) -> None:
    """Refuse a threshold that is not a number from 0 to 1."""
    if threshold is None:
        return
    is_number = isinstance(threshold, Real) and not isinstance(threshold, bool)
    if not is_number or not 0 <= float(threshold) <= 1:  # NaN fails too
        raise ConfigError(f"threshold must be from 0 to 1; got {threshold!r:.40}.")


def check_decision(multi_label: bool | None, threshold: Any) -> None:
    """Refuse a threshold that is invalid, or that would have no effect."""
    check_threshold(threshold)
    if threshold is not None and multi_label is False:
        raise ConfigError(
            f"threshold must go with all labels past it; got {threshold} for one label "
            "per text. Leave out the threshold, or ask for all labels."
        )
