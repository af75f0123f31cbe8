"""Fields that check themselves: type, choices and bounds, all faults in one message."""

import functools
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, Literal

from textcapsules.base.errors import ConfigError

__all__ = ["Checked", "option"]


def option(default: Any, help: str, *, common: bool = False, **bounds: float) -> Any:
    """Declare a field: its default, its help text, and bounds (keys of `BOUNDS`).

    The command line's short help shows only the `common` ones.
    """
    return field(default=default, metadata={"help": help, "common": common, **bounds})


# How an error message words a bound, and what the bound allows.
BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "low": ("of at least", operator.ge),
    "above": ("above", operator.gt),
    "high": ("at most", operator.le),
    "below": ("below", operator.lt),
}


# Upper limit of a whole number whose option sets none: 32 bits, with a sign.
LARGEST = 2**31 - 1

# Cached, since a plan of all tables makes thousands of sections.
type_hints = functools.cache(typing.get_type_hints)


# Values that were right before: a plan of all tables checks the same ones hundreds of
# thousands of times. Only of types whose equal values are the same to a check.
PLAIN = (str, int, float, bool, type(None))
MOST_RIGHT = 10_000
right: set[tuple[Any, ...]] = set()


class Checked:
    """A dataclass whose fields are checked when it is made."""

    def __post_init__(self) -> None:
        """Normalise lists to tuples, then report every fault at once."""
        faults = []
        hints = type_hints(type(self))
        for spec in fields(self):  # type: ignore[arg-type]
            value = getattr(self, spec.name)
            if isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, spec.name, value)
            known = (type(self), spec.name, type(value), value)
            if type(value) in PLAIN and known in right:
                expected = ""
            else:
                expected = _fault(value, hints[spec.name], spec.metadata)
            if expected:
                faults.append(f"{spec.name} must be {expected}; got {as_text(value)}")
                continue
            if type(value) in PLAIN and len(right) < MOST_RIGHT:
                right.add(known)
            if isinstance(value, int) and hints[spec.name] is float:
                object.__setattr__(self, spec.name, float(value))
        if faults:
            raise ConfigError("; ".join(faults) + ".")


def as_text(value: Any) -> str:
    """Return a value as Python writes it, or its type if it is too large for that."""
    try:
        return repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return f"a value of type {type(value).__name__} too large to show"


def _bounds(hint: Any, bounds: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the bounds of an option, with the limit of whole numbers."""
    return {"high": LARGEST, **bounds} if hint is int else bounds


def _fault(value: Any, hint: Any, bounds: Mapping[str, Any]) -> str:
    """Return what `value` should have been, or an empty text if it is right."""
    if isinstance(hint, types.UnionType):  # `X | None`
        if value is None:
            return ""
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        choices = ", ".join(map(repr, arguments))
        return "" if value in arguments else f"one of {choices}"
    if origin is tuple:
        inner = isinstance(value, tuple) and value
        wrong = not inner or any(_fault(item, arguments[0], bounds) for item in value)
        return f"a list, each {_expected(arguments[0], bounds)}" if wrong else ""
    kinds = (int, float) if hint is float else hint
    if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
        return _expected(hint, bounds)
    if hint is float and not abs(value) <= sys.float_info.max:  # NaN fails too
        return _expected(hint, bounds)
    bounds = _bounds(hint, bounds)
    kept = all(BOUNDS[key][1](value, bounds[key]) for key in bounds if key in BOUNDS)
    return "" if kept else _expected(hint, bounds)


def _expected(hint: type, bounds: Mapping[str, Any]) -> str:
    names = {int: "a whole number", float: "a finite number", bool: "true or false"}
    bounds = _bounds(hint, bounds)
    limits = [
        f"{words} {bounds[key]}" for key, (words, _) in BOUNDS.items() if key in bounds
    ]
    return " ".join([names.get(hint, "a text"), " and ".join(limits)]).strip()
