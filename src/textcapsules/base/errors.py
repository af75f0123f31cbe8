"""Errors that a caller may catch, and warnings that a run collects.

Every error's message has one form: ``<name> must be <expected>; got <value>. <what to
do>``. The command line prints it on one line and exits with 2. An exception that is not
a `TextCapsulesError` is a fault of this package and keeps its traceback.

A warning is logged once, and added to the lists of all collectors around it. The
command line prints warnings on stderr and lists them under `warnings` with --json; a
run keeps them in training.json.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["collect_warnings", "collected_warnings", "warn"]


class TextCapsulesError(Exception):
    """The base of all errors that the caller can correct."""


class ConfigError(TextCapsulesError, ValueError):
    """An option, or a combination of options, that cannot work."""


class DataError(TextCapsulesError):
    """A file or table of texts that cannot be read as the options say."""


class InputError(DataError, ValueError):
    """Texts given in Python that are not a list of strings."""


class CorpusError(DataError):
    """A benchmark corpus that is missing, damaged or not as the catalogue says."""


class DownloadError(TextCapsulesError):
    """A download that did not arrive, or arrived damaged."""


class ModelFolderError(TextCapsulesError):
    """A model or run folder that is missing, damaged, foreign, or in the way."""


class WriteError(TextCapsulesError):
    """A file that could not be written, as on a full disk."""


log = logging.getLogger("textcapsules")
_lists: ContextVar[tuple[list[str], ...]] = ContextVar("_lists", default=())


def warn(message: str) -> None:
    """Log a warning of one line, unless a collector around it has it already."""
    lists = _lists.get()
    is_known = any(message in messages for messages in lists)
    for messages in lists:
        if message not in messages:
            messages.append(message)
    if not is_known:
        log.warning("%s", message)


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Yield a list to which every warning inside the block is added."""
    messages: list[str] = []
    token = _lists.set((*_lists.get(), messages))
    try:
        yield messages
    finally:
        _lists.reset(token)


def collected_warnings() -> list[str]:
    """Return the warnings that the outermost collector has so far."""
    return list(next(iter(_lists.get()), []))
