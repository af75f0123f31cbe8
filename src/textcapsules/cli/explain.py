"""`textcapsules explain`."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError, DataError, WriteError
from textcapsules.cli.options import Delimiter, Encoding
from textcapsules.cli.predict import (
    PLAIN,
    existing_file,
    is_utf8,
    looks_like_file,
    missing_file,
    stdin_lines,
)
from textcapsules.cli.show import Json, err, print_json, say

__all__ = ["check_page", "explain"]

LONGEST = 100  # words of a text that are printed; of a longer one, its phrases are
CONTEXT = 5  # words printed before and after such a phrase


def explain(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; or a file of them; or - for one a line on stdin."),
    ] = None,
    text_column: Annotated[str, typer.Option(help="A table's text column.")] = "text",
    delimiter: Delimiter = None,
    encoding: Encoding = None,
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
    Of a text of more than 100 words the phrases alone are printed.
    With --out, a self-contained page shows the texts, phrases highlighted.

      textcapsules explain runs/model "charged twice and cannot log in"

      textcapsules explain runs/model tickets.csv --out explained.html
    """
    from textcapsules.base.files import write_text
    from textcapsules.data.table_formats import TextFormat
    from textcapsules.draw.pages import render_explanations
    from textcapsules.model.capsnet import CapsuleNetwork
    from textcapsules.model.classifier import TextClassifier
    from textcapsules.reasons.routing_inspection import connections
    from textcapsules.reasons.texts import explain as explain_texts

    if not texts:
        raise ConfigError(
            "input must be texts, a file or -; got none. Give a text in quotes."
        )
    if limit < 1:
        raise ConfigError(f"limit must be at least 1; got {limit}.")
    if out is not None:
        check_page(out, overwrite)
    classifier = TextClassifier.load(model, device)
    form = TextFormat(delimiter, encoding)
    given = list(islice(read_texts(texts, text_column, form), limit + 1))
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
        print_explanation(explanation, classifier)
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


def read_texts(texts: list[str], text_column: str, form: Any) -> Iterator[str]:
    """Yield the texts that arguments, a file's name or a pipe stand for."""
    is_one = len(texts) == 1 and texts != ["-"]
    path = existing_file(texts[0]) if is_one else None
    if path is not None:
        yield from read_file(path, text_column, form)
        return
    if any(value is not None for value in form):
        raise ConfigError(
            "delimiter and encoding must go with a file; got them without one. Leave "
            "them out."
        )
    if texts == ["-"]:
        yield from (line.rstrip("\r\n") for line in stdin_lines())
        return
    if all(map(looks_like_file, texts)):
        refuse_files(texts)
    for place, text in enumerate(texts, start=1):
        if not is_utf8(text):
            raise DataError(f"text must be UTF-8; got {text!r} as text {place}.")
        yield text


def refuse_files(names: list[str]) -> None:
    """Say which file is not there, or that there are several."""
    for name in names:
        if existing_file(name) is None:
            raise DataError(missing_file(name))
    raise ConfigError(
        f"input must be one file, or texts; got {len(names)} files. Explain them one "
        "by one."
    )


def read_file(path: Path, text_column: str, form: Any) -> Iterator[str]:
    """Yield the texts of a table's rows, or a file that is one text."""
    from textcapsules.data.table import stream_table
    from textcapsules.data.table_formats import read_text

    if path.suffix.lower() in PLAIN:
        yield read_text(path, form)
        return
    options = {"text_column": text_column, "columns": (), **form._asdict()}
    for batch in stream_table(path, **options):
        yield from batch.column(text_column).to_pylist()


def print_explanation(explanation: Any, classifier: Any) -> None:
    """Print a text, and for each label predicted what spoke for it.

    Of a long text only the phrases are printed, with the words around them.
    """
    text, limit = explanation.text, classifier.config.text.max_tokens
    n_words = len(classifier.tokenizer.tokens(text))
    is_long = n_words > LONGEST or len(text) > 10 * LONGEST
    if is_long:
        say(f"{clip(text)} ({n_words:,} words)")
    else:
        say(" ".join(text.split()))
    if n_words > limit:
        say(
            f"  the model read the first {limit:,} words; {n_words - limit:,} were cut "
            "at --max-tokens, an option of training"
        )
    by_name = {label.label: label for label in explanation.labels}
    for name in explanation.predicted:
        label = by_name[name]
        told = [
            f"{in_context(text, p) if is_long else f'“{p.text}”'} {p.strength:.3f}"
            for p in label.phrases
        ]
        say(
            f"  {name} {label.score:.2f}: {', '.join(told) or 'no phrase spoke for it'}"
        )
    if not explanation.predicted:
        say("  no label")
    say(f"  {explanation.known:,} of {explanation.words:,} words known")


def in_context(text: str, phrase: Any) -> str:
    """Return a phrase in quotes between the words around it."""
    reach = 20 * CONTEXT  # characters, so that a word without an end is cut
    before = text[max(0, phrase.start - reach) : phrase.start].split()[-CONTEXT:]
    after = text[phrase.end : phrase.end + reach].split()[:CONTEXT]
    quoted = f"“{clip(phrase.text)}”"
    return " ".join(["…", *before, quoted, *after, "…"])


def clip(text: str, longest: int = 80) -> str:
    """Return the beginning of a text on one line.

    >>> clip("one  two three", 8)
    'one two…'
    """
    start = " ".join(text[: 4 * longest].split())
    return start if len(start) <= longest else start[:longest].rstrip() + "…"
