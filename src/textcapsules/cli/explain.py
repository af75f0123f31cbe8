"""`textcapsules explain`."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.collector import collector_paused
from textcapsules.base.errors import ConfigError
from textcapsules.cli.inputs import check_input, existing_file, read_lines, read_rows
from textcapsules.cli.options import (
    Delimiter,
    Device,
    Encoding,
    Json,
    Model,
    MultiLabel,
    Overwrite,
    Refuse,
    TextColumn,
    Texts,
    Threshold,
)
from textcapsules.cli.show import err, folder_name, print_json, say

__all__ = ["explain"]

PAGES, PICTURES = (".html", ".htm"), (".png",)  # endings of what --out may name

LONGEST = 100  # words of a text that is printed whole; of a longer one, phrases are
CONTEXT = 5  # words printed before and after such a phrase


def explain(
    model: Model,
    texts: Texts = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="CSV, TSV, JSONL or Parquet file with one text per row, or a .txt or "
            ".md file that is one text."
        ),
    ] = None,
    text_column: TextColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="HTML page to write, with the phrases highlighted; of one text also a "
            "picture for a slide, if the name ends in .png."
        ),
    ] = None,
    overwrite: Overwrite = False,
    multi_label: MultiLabel = None,
    threshold: Threshold = None,
    refuse: Refuse = True,
    method: Annotated[
        str | None,
        typer.Option(
            help="Which method proposes phrases: contributions, sampled or couplings "
            "for capsule networks, gradient or integrated for networks, erasure for "
            "any model of words. By default the one that was most faithful on dev "
            "texts when the model was trained.",
        ),
    ] = None,
    why_not: Annotated[
        list[str] | None,
        typer.Option(
            "--why-not",
            metavar="LABEL",
            help="Show what speaks for and against this label too, given or not; may "
            "be repeated.",
        ),
    ] = None,
    what_would_change: Annotated[
        bool,
        typer.Option(
            "--what-would-change",
            help="Find a small deletion that would take each given label away, or give "
            "one that --why-not names.",
        ),
    ] = False,
    top: Annotated[int, typer.Option(help="Maximum number of phrases per label.")] = 5,
    limit: Annotated[int, typer.Option(help="Maximum number of texts.")] = 100,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Show which phrases of a text speak for each predicted label.

    The number after a phrase is how far the label's score falls when the phrase is
    deleted and the model predicts again.

    A text of more than 100 words is not printed whole, only its phrases.
    With --out, a page that needs no network shows the texts, phrases highlighted.

      textcapsules explain runs/model "charged twice and cannot log in"

      textcapsules explain runs/model "the app is slow" --why-not crash

      textcapsules explain runs/model --data tickets.csv --out explained.html

      textcapsules explain runs/model "charged twice" --out why.png
    """
    with collector_paused():
        from textcapsules.base.checks import check_decision
        from textcapsules.base.files import check_new_file, write_text
        from textcapsules.draw.pages import render_explanations
        from textcapsules.model.capsnet import CapsuleNetwork
        from textcapsules.model.classifier import TextClassifier
        from textcapsules.reasons.choice import warn_of_method
        from textcapsules.reasons.routing_inspection import connections
        from textcapsules.reasons.texts import explain as explain_texts

    if data is None and texts and len(texts) == 1:  # a file may be named without --data
        data = existing_file(texts[0])
        texts = texts if data is None else None
    form = {"delimiter": delimiter, "encoding": encoding}
    check_input(texts, data, text_column=text_column, **form)
    check_decision(multi_label, threshold)
    if limit < 1:
        raise ConfigError(f"limit must be at least 1; got {limit}.")
    ending = "" if out is None else out.suffix.lower()
    if out is not None:
        if not out.is_dir() and ending not in (*PAGES, *PICTURES):
            raise ConfigError(
                f"out must end in .html or .htm, for a page, or in .png, for a "
                f"picture; got {str(out)!r}. Name another file."
            )
        check_new_file(out, overwrite)
    classifier = TextClassifier.load(model, device)
    column = text_column or classifier.config.data.text_column
    if data is not None:
        given = read_rows(data, column, **form)
    else:
        given = read_lines() if texts == ["-"] else iter(texts or ())
    first, asked = list(islice(given, limit + 1)), why_not or []
    if len(first) > limit:
        err.print(f"Only the first {limit:,} texts are explained; see --limit.")
    is_picture = ending in PICTURES
    if is_picture and len(first) != 1:
        raise ConfigError(
            f"out must be an .html page for {len(first[:limit]):,} texts; got "
            f"{str(out)!r}. A picture shows one text."
        )
    explanations = explain_texts(
        classifier,
        first[:limit],
        method=method,
        top=top,
        multi_label=multi_label,
        threshold=threshold,
        refuse=refuse,
        about=asked,
        changes=what_would_change,
    )
    warning = method and warn_of_method(classifier, method)
    if warning:
        err.print(f"Warning: {warning}")
    if out is not None and is_picture:
        explanations[0].to_png(out, top=top)
    elif out is not None:
        n_texts = len(explanations)
        chart = None
        if n_texts == 1 and isinstance(classifier.network, CapsuleNetwork):
            chart = connections(classifier, explanations[0].text)
        texts_named = "1 text" if n_texts == 1 else f"{n_texts:,} texts"
        lead = f"Model {folder_name(model)}, {texts_named}."
        write_text(
            out,
            render_explanations(explanations, lead=lead, top=top, connections=chart),
        )
    for explanation in [] if json else explanations:
        print_explanation(explanation, classifier, asked, changes=what_would_change)
    if out is not None:
        say(f"{'picture' if is_picture else 'page'}: {out}")
    if json:
        values: dict[str, Any] = {"model": folder_name(model)}
        if out is not None:
            values["out"] = str(out)
        values["explanations"] = [each.to_dict() for each in explanations]
        print_json(values)


def print_explanation(
    explanation: Any, classifier: Any, asked: list[str], *, changes: bool
) -> None:
    """Print a text, and the phrases that speak for each predicted label.

    Of a long text only the phrases are printed, with the words around them.

    Args:
        explanation: of the text.
        classifier: the model.
        asked: labels to be shown even if they were not given.
        changes: whether to say what would change the labels.
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

    def listed(phrases: Any) -> str:
        from textcapsules.reasons.explanation import format_strength

        return ", ".join(
            f"{in_context(text, p) if is_long else f'“{p.text}”'} "
            f"{format_strength(p.strength)}"
            for p in phrases
        )

    by_name = {label.label: label for label in explanation.labels}
    for name in dict.fromkeys((*explanation.predicted, *asked)):
        label = by_name[name]
        reasons = listed(label.phrases) or "no single phrase carries it"
        given = "" if label.predicted else ", not given"
        limit_shown = f"from {label.threshold:.2f}{given}"
        say(f"  {name} {label.score:.2f} ({limit_shown}): {reasons}")
        if name in asked and label.against:
            say(f"    against it: {listed(label.against)}")
        if changes:
            say(f"    {change_line(text, label)}")
    if not explanation.predicted:
        refused = (
            ": outside the training topics (--no-refuse gives labels all the same)"
        )
        say(f"  no label{refused if explanation.outside else ''}")
    if len(explanation.sentences) > 2:
        for name in explanation.predicted:
            best = max(explanation.sentences, key=lambda each: each.falls[name])
            if best.falls[name] > 0:
                sentence = clip(text[best.start : best.end])
                say(f"  {name} rests on: “{sentence}” {best.falls[name]:.2f}")
    say(
        f"  {explanation.known:,} of {explanation.words:,} words known; phrases "
        f"proposed by {explanation.method}"
    )


def change_line(text: str, label: Any) -> str:
    """Say which deletion would turn a label's decision round."""
    verb = "taken away" if label.predicted else "given"
    if label.change is None:
        return f"no deletion was found without which it would be {verb}"
    stretches = " and ".join(f"“{clip(text[a:b])}”" for a, b in label.change.deleted)
    return f"{verb} without {stretches}: {label.change.score:.2f}"


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
