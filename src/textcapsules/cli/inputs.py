"""The texts that `predict` and `explain` read: arguments, lines of stdin, or a file."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from textcapsules.base.errors import ConfigError, DataError

__all__ = ["check_input", "existing_file", "read_lines", "read_rows"]

ONE_TEXT = (".txt", ".text", ".md")  # files that are one text
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
UNREADABLE_TABLES = (".json", ".xls", ".xlsx", ".ods")


def check_input(
    texts: Sequence[str] | None, data: Path | None, **file_options: str | None
) -> None:
    """Refuse no input, two inputs, names of files in place of texts, and stray options.

    Args:
        texts: the arguments.
        data: the file of --data.
        file_options: options that make sense with a file only.
    """
    if (data is None) == (not texts):
        raise ConfigError(
            "input must be texts, - or --data FILE; got "
            + ("both." if texts else "none. Give a text in quotes.")
        )
    for name, value in file_options.items():
        if value is not None and data is None:
            raise ConfigError(
                f"{name.replace('_', '-')} must go with --data; got {value!r} without "
                "a file. Leave it out."
            )
    for place, text in enumerate(texts or (), start=1):
        if not is_utf8(text):
            raise DataError(f"text must be UTF-8; got {text!r} as text {place}.")
        if existing_file(text):
            raise ConfigError(
                f"text must be a text; got {text!r}, the name of a file. If you mean "
                f"the file, pass {how_to_pass(text)}; if it is a text, send it to "
                "stdin with -."
            )
    if texts and all(map(looks_like_file, texts)):
        raise DataError(
            f"{texts[0]} must be a file; got no such file. Check the name, or send it "
            "to stdin with - if it is a text."
        )


def how_to_pass(file: str) -> str:
    """Return the arguments that make a command read a file."""
    if Path(file).suffix.lower() in ONE_TEXT:
        return f"- < {file}, which reads one text per line"
    return f"--data {file}"


def looks_like_file(text: str) -> bool:
    """Tell the name of a table or a text file from a text.

    >>> [looks_like_file(text) for text in ("new.csv", "I opened new.csv", "etc.")]
    [True, False, False]
    """
    name = text.lower().removesuffix(".gz")
    is_path = not any(map(str.isspace, text)) or text.startswith(("/", "./", "../"))
    # A name has something before its ending.
    return is_path and any(
        name.endswith(ending) and len(name) > len(ending)
        for ending in (*TABLES, *ONE_TEXT, *UNREADABLE_TABLES)
    )


def existing_file(argument: str) -> Path | None:
    """Return the file that an argument names, if there is one."""
    with suppress(OSError, ValueError):  # too long for a name, or no name at all
        if Path(argument).is_file():
            return Path(argument)
    return None


def is_utf8(text: str) -> bool:
    """Tell whether an argument came as UTF-8: Python keeps other bytes as marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_lines() -> Iterator[str]:
    """Yield the lines of stdin, which must be UTF-8 whatever the locale."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise DataError(
                f"stdin must be UTF-8; got byte {byte:#04x} in line {number}."
            ) from error
        yield text.rstrip("\r\n")


def read_rows(path: Path, text_column: str, **form: Any) -> Iterator[str]:
    """Yield the text of each row of a table, or a file that is one text."""
    from textcapsules.data.table import stream_table
    from textcapsules.data.table_formats import TextFormat, read_text

    if path.suffix.lower() in ONE_TEXT:
        yield read_text(path, TextFormat(**form))
        return
    for batch in stream_table(path, text_column=text_column, columns=(), **form):
        yield from batch.column(text_column).to_pylist()
