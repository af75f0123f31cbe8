"""`textcapsules explain`."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.cli.predict import is_utf8, stdin_lines
from textcapsules.cli.show import Json, err, print_json, say
from textcapsules.errors import ConfigError, DataError, WriteError

__all__ = ["check_page", "explain"]

PLAIN = (".txt", ".text", ".md")


def explain(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; or a file of them; or - for one a line on stdin."),
    ] = None,
    text_column: Annotated[str, typer.Option(help="A table's text column.")] = "text",
    out: Annotated[
        Path | None, typer.Option(help="HTML page to write, texts highlighted.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace --out if it exists.")
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(
            help="What a strength is: couplings (the default) or contributions of "
            "capsules; gradient (a CNN's default), integrated (an LSTM's) or erasure "
            "(TF-IDF's and fastText's).",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Phrases a label, at most.")] = 5,
    limit: Annotated[int, typer.Option(help="Texts at most; the rest is left.")] = 100,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Json = False,
) -> None:
    """Say which phrases spoke for each label of a text.

    A file is a CSV, TSV, JSONL or Parquet table, or one text (.txt, .md).
    With --out, a self-contained page shows the texts, phrases highlighted.

      textcapsules explain runs/model "charged twice and cannot log in"

      textcapsules explain runs/model tickets.csv --out explained.html
    """
    from textcapsules.classifier import TextClassifier
    from textcapsules.explain.displays import connections
    from textcapsules.explain.render import render_explanations
    from textcapsules.explain.texts import explain as explain_texts
    from textcapsules.files import write_text
    from textcapsules.model.capsnet import CapsuleNetwork

    if not texts:
        raise ConfigError(
            "input must be texts, a file or -; got none. Give a text in quotes."
        )
    if limit < 1:
        raise ConfigError(f"limit must be at least 1; got {limit}.")
    if out is not None:
        check_page(out, overwrite)
    classifier = TextClassifier.load(model, device)
    given = list(islice(read_texts(texts, text_column), limit + 1))
    if len(given) > limit:
        err.print(f"Only the first {limit:,} texts are explained; see --limit.")
    found = explain_texts(classifier, given[:limit], method=method, top=top)
    if out is not None:
        lead = (
            f"Model {model}, {len(found):,} {'text' if len(found) == 1 else 'texts'}."
        )
        alone = None
        if len(found) == 1 and isinstance(classifier.network, CapsuleNetwork):
            alone = connections(classifier, found[0].text)
        write_text(
            out, render_explanations(found, lead=lead, top=top, connections=alone)
        )
    for explanation in [] if json else found:
        print_explanation(explanation)
    if out is not None:
        say(f"page: {out}")
    if json:
        values: dict[str, Any] = {"model": str(model)}
        if out is not None:
            values["out"] = str(out)
        print_json({**values, "explanations": [each.to_dict() for each in found]})


def check_page(path: Path, overwrite: bool) -> None:
    """Refuse to replace a page unless told to."""
    if path.is_dir():
        raise WriteError(f"{path} must be a file to write; got a folder. Name a file.")
    if path.exists() and not overwrite:
        raise WriteError(
            f"{path} must not exist yet; got an existing file. Name another, or pass "
            "--overwrite."
        )


def read_texts(texts: list[str], text_column: str) -> Iterator[str]:
    """Yield the texts that arguments, a file's name or a pipe stand for."""
    if texts == ["-"]:
        yield from (line.rstrip("\r\n") for line in stdin_lines())
    elif len(texts) == 1 and (path := existing_file(texts[0])):
        yield from read_file(path, text_column)
    else:
        for place, text in enumerate(texts, start=1):
            if not is_utf8(text):
                raise DataError(f"text must be UTF-8; got {text!r} as text {place}.")
            yield text


def existing_file(argument: str) -> Path | None:
    """Return the file an argument names, if it does."""
    with suppress(OSError, ValueError):  # too long for a name, or no name at all
        if Path(argument).is_file():
            return Path(argument)
    return None


def read_file(path: Path, text_column: str) -> Iterator[str]:
    """Yield the texts of a table's rows, or a file that is one text."""
    from textcapsules.data.table import stream_table

    if path.suffix.lower() not in PLAIN:
        for batch in stream_table(path, text_column=text_column, columns=()):
            yield from batch.column(text_column).to_pylist()
        return
    try:
        yield path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} must be a readable UTF-8 text; got {error}. Name another file."
        ) from error


def print_explanation(explanation: Any) -> None:
    """Print a text, and for each label predicted what spoke for it."""
    say(" ".join(explanation.text.split()))
    by_name = {label.label: label for label in explanation.labels}
    for name in explanation.predicted:
        label = by_name[name]
        phrases = ", ".join(f"“{p.text}” {p.strength:.3f}" for p in label.phrases)
        say(f"  {name} {label.score:.2f}: {phrases or 'no phrase spoke for it'}")
    if not explanation.predicted:
        say("  no label")
    say(f"  {explanation.known:,} of {explanation.words:,} words known")
