"""The command line: parse, call the library, print.

A user's mistake is one line on stderr and exit 2; a fault of ours keeps its traceback.
"""

import sys

from textcapsules.cli.app import app
from textcapsules.errors import TextCapsulesError

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    try:
        code = app(standalone_mode=False)
    except TextCapsulesError as error:
        fail(str(error))
    except Exception as error:
        # typer's own usage errors, told by what they can do: their class has moved.
        if not hasattr(error, "format_message"):
            raise
        fail(error.format_message())  # type: ignore[attr-defined]
    else:
        sys.exit(code if isinstance(code, int) else 0)


def fail(message: str) -> None:
    """Print one line and exit with 2."""
    line = " ".join(message.split())
    sys.stderr.write(f"textcapsules: {line}\n")
    sys.exit(2)
