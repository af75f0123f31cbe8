"""The command line: parse, call the library, print.

A mistake of the user is one line on stderr and exit 2; a fault of ours keeps its
traceback.
"""

import errno
import io
import os
import sys
from pathlib import Path

from textcapsules.base.errors import TextCapsulesError, collect_warnings
from textcapsules.base.files import REMEDIES, remedy
from textcapsules.cli.app import app
from textcapsules.cli.show import print_warnings

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # labels of any script, in any locale
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        with print_warnings(), collect_warnings():
            code = app(standalone_mode=False, prog_name="textcapsules")
        sys.stdout.flush()
    except TextCapsulesError as error:
        fail(str(error))
    except OSError as error:
        if error.filename is not None and error.errno in REMEDIES:
            fail(
                f"{error.filename} must be usable as a path; got {error.strerror}. "
                f"{remedy(error)}."
            )
        # Errors of files name the file; what is left is the output.
        if error.errno != errno.ENOSPC:
            raise
        drop_output()
        fail(f"output must be writable; got {error.strerror}. Free some space.")
    except Exception as error:
        # Usage errors of typer, known by their method: their class has moved.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        see = f" See {context.command_path} --help." if context else ""
        message = error.format_message()  # type: ignore[attr-defined]
        fail(message and f"{message.rstrip('.')}.{see}")
    else:
        sys.exit(code if isinstance(code, int) else 0)


def fail(message: str) -> None:
    """Print one line, if there is anything to say, and exit with 2."""
    if line := " ".join(message.split()):
        sys.stderr.write(f"textcapsules: {line}\n")
    sys.exit(2)


def drop_output() -> None:
    """Drop what could not be written, or Python tries again when it ends."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
