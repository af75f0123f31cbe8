"""`textcapsules review`."""

import shlex
import string
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import InputError
from textcapsules.cli.inputs import read_rows
from textcapsules.cli.options import (
    Delimiter,
    Device,
    Encoding,
    Json,
    Model,
    TextColumn,
)
from textcapsules.cli.show import out as console
from textcapsules.cli.show import print_json, say, work_bar
from textcapsules.config import DataConfig

__all__ = ["RandomShare", "review"]

RandomShare = Annotated[
    float,
    typer.Option(
        help="Share of the texts that are drawn at random rather than for their "
        "uncertainty; the estimate uses those alone."
    ),
]
COMMANDS = "suq"  # skip, undo, quit
KEYS = "123456789" + "".join(
    letter for letter in string.ascii_letters if letter not in COMMANDS
)
CASES = (string.ascii_lowercase, string.ascii_uppercase)
FIT_EVERY = 10  # texts
STYLES = ("black on yellow", "black on cyan", "black on green", "black on magenta")


def review(
    model: Model,
    data: Annotated[
        Path,
        typer.Option(help="CSV, TSV, JSONL or Parquet file with one text per row."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Table to write the reviewed texts to. Each decision is saved at once "
            "in a log beside it, from which a later review of the same file goes on."
        ),
    ],
    text_column: TextColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    random_share: RandomShare = 0.25,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Decide with a few keys which labels texts really deserve.

    The texts whose labels are the least certain come first; some are drawn at random.
    Enter accepts the labels shown, a label's key gives or takes it, s skips the text, u
    undoes the last decision, q quits. If stdin is no terminal, each line is one
    decision: keys of labels to change, or s, u or q. A line with anything else ends
    the review with an error; the decisions before it are kept.

      textcapsules review runs/model --data new.csv --out reviewed.csv
    """
    from textcapsules.data.reviews import (
        ReviewLog,
        check_export,
        export_reviews,
        log_path,
    )
    from textcapsules.inference.recalibrate import model_identity
    from textcapsules.inference.review import ReviewQueue
    from textcapsules.model.classifier import TextClassifier

    log = ReviewLog(log_path(out), model_identity(model))
    check_export(log, out)
    classifier = TextClassifier.load(model, device)
    columns = classifier.config.data
    form = {"delimiter": delimiter, "encoding": encoding}
    texts = list(read_rows(data, text_column or columns.text_column, **form))
    with work_bar("Scoring", quiet=json) as on_texts:
        queue = ReviewQueue(
            classifier, texts, log, random_share=random_share, on_texts=on_texts
        )
    try:
        # Ctrl-C is as good as q: all decisions are on the disk.
        n_labels = len(classifier.labels.names)
        with suppress(KeyboardInterrupt), key_presses(n_labels) as keys:
            ask_all(queue, keys)
    finally:
        names = {
            "text_column": columns.text_column,
            "label_column": columns.label_column,
        }
        n_reviewed = export_reviews(log, out, **names) if log.entries() else 0
    if not n_reviewed:
        say("No text was reviewed.")
    else:
        say(
            f"{out}: {n_reviewed} reviewed texts. New thresholds from them:\n"
            f"  textcapsules calibrate {model} --data {out} --in-place\n"
            "Training with them:\n"
            f"  textcapsules train --data {shlex.quote(columns.source)}"
            f"{named_columns(columns)} --add {shlex.quote(str(out))} "
            "--task multi-label --out runs/corrected"
        )
    if json:
        fitted = queue.fit()
        print_json(
            {
                "model": str(model),
                "out": str(out),
                "log": str(log.path),
                **queue.counts(),
                "calibration": None if fitted is None else fitted.to_dict(),
            }
        )


def named_columns(data: DataConfig) -> str:
    """Return the flags that name a table's columns, where they are not the usual."""
    usual, flags = DataConfig(), []
    for name in ("text_column", "label_column"):
        if (value := getattr(data, name)) != getattr(usual, name):
            flags += [f"--{name.replace('_', '-')}", shlex.quote(value)]
    return "".join(f" {flag}" for flag in flags)


@contextmanager
def key_presses(n_labels: int) -> Iterator[Iterator[str]]:
    """Yield the keys pressed, or those in the lines of a pipe, until its end."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        yield keys_of_lines(n_labels)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield iter(lambda: sys.stdin.read(1), "")
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def keys_of_lines(n_labels: int) -> Iterator[str]:
    """Yield the keys of each line; its end accepts, unless a command decided.

    A line is a whole decision: were its unknown keys left out, as those of a terminal
    are, a typing error would be logged as labels that a person has accepted.
    """
    known = KEYS[:n_labels]
    for number, line in enumerate(sys.stdin, start=1):
        keys = "".join(line.split())
        is_command = len(keys) == 1 and keys in COMMANDS
        if not is_command and (wrong := set(keys) - set(known)):
            message = (
                f"line {number} must be keys of labels ({key_range(known)}), nothing "
                f"to accept, or one of s, u and q; got {keys!r:.40}, of which "
                f"{min(wrong, key=keys.index)!r} is no key of a label. "
            )
            if not sys.stdin.isatty():
                raise InputError(
                    f"{message}Mend that line, and give it and those after it again; "
                    "the decisions before it are kept."
                )
            say(f"{message}Type it again.")  # on Windows, where a terminal gives lines
            continue
        yield from keys
        if not is_command:
            yield "\n"


def key_range(keys: str) -> str:
    """Return keys of labels as a reader writes them.

    >>> key_range(KEYS[:1]), key_range(KEYS[:3]), key_range(KEYS[:11])
    ('1', '1 to 3', '1 to 9 and a to b')
    """
    digits = [key for key in keys if key.isdigit()]
    lower, upper = ([k for k in keys if k in kind] for kind in CASES)
    parts = [each for each in (digits, lower, upper) if each]
    return " and ".join(" to ".join(dict.fromkeys((p[0], p[-1]))) for p in parts)


def ask_all(queue: Any, keys: Iterator[str]) -> None:
    """Ask about one text after another until none is left, or the user quits."""
    done, first = 0, None
    while items := queue.upcoming(first=first):
        answer = ask(queue, items[0], keys)
        if answer == "q":
            return
        if answer == "u":
            undone = queue.log.undo()
            say("undone" if undone else "there is nothing to undo")
            first = undone.text if undone else items[0].text
            continue
        first = None
        done += answer == "accept"
        if done and done % FIT_EVERY == 0 and answer == "accept":
            print_fit(queue)
    say("All texts are decided.")


def print_fit(queue: Any) -> None:
    """Print the thresholds that the decisions so far give, and what to expect."""
    from textcapsules.inference.review import expected

    fitted = queue.fit()
    if fitted is None:
        return
    pairs = zip(fitted.labels, fitted.before, fitted.after, strict=True)
    moved = ", ".join(f"{name} {old:.2f} → {new:.2f}" for name, old, new in pairs)
    each = "Every text gets a label.\n" if fitted.at_least_one else ""
    say(f"{fitted.texts} reviewed: {expected(fitted)}.\nThresholds: {moved}\n{each}")


def ask(queue: Any, item: Any, keys: Iterator[str]) -> str:
    """Show a text, let labels be changed, and log the decision.

    Returns accept, s, u or q; u and q leave the text undecided.
    """
    names = queue.classifier.labels.names
    shown = shown_labels(names, item.scores)
    given = set(item.proposed)
    explanation = explain_item(queue.classifier, item)
    print_text(queue, item, explanation)
    print_labels(shown, given, item, names, explanation)
    for key in keys:
        if key in "\r\n":
            queue.decide(item.text, [name for name in names if name in given])
            return "accept"
        if key == "s":
            queue.skip(item.text)
            return key
        if key in COMMANDS:
            return key
        place = KEYS.find(key)
        if 0 <= place < len(shown):
            given ^= {shown[place]}
            print_labels(shown, given, item, names, explanation)
    return "q"


def shown_labels(names: Sequence[str], scores: Any) -> list[str]:
    """Return the labels that have keys: all in their order, or the strongest."""
    if len(names) <= len(KEYS):
        return list(names)
    order = sorted(range(len(names)), key=lambda j: -scores[j])
    return [names[j] for j in order[: len(KEYS)]]


def explain_item(classifier: Any, item: Any) -> Any:
    """Return which phrases speak for which label; None if the model cannot tell."""
    from textcapsules.reasons.methods import can_explain
    from textcapsules.reasons.texts import explain

    if not can_explain(classifier) or not (item.scores > 0).any():
        return None
    return explain(classifier, item.text, top=3, multi_label=True)


def print_text(queue: Any, item: Any, explanation: Any) -> None:
    """Print the text, with the phrases of the proposed labels in colour."""
    from rich.text import Text

    left = queue.counts()["left"]
    why = "drawn at random" if item.is_random else "uncertain"
    say(f"\n{left:,} left; {why}")
    marked = Text(item.text)
    by_name = {} if explanation is None else {e.label: e for e in explanation.labels}
    for place, name in enumerate(item.proposed):
        for phrase in by_name[name].phrases if name in by_name else ():
            style = STYLES[place % len(STYLES)]
            marked.stylize(style, phrase.start, phrase.end)
    console.print(marked)


def print_labels(
    shown: Sequence[str],
    given: set[str],
    item: Any,
    names: Sequence[str],
    explanation: Any,
) -> None:
    """Print each label with its key, whether it is given, its score and reasons."""
    scores = dict(zip(names, item.scores.tolist(), strict=True))
    by_name = {} if explanation is None else {e.label: e for e in explanation.labels}
    for key, name in zip(KEYS, shown, strict=False):
        mark = "x" if name in given else " "
        reasons = ""
        if name in by_name and name in given:
            phrases = [f"“{phrase.text}”" for phrase in by_name[name].phrases]
            reasons = "  " + ", ".join(phrases)
        say(f"  {key} [{mark}] {name} {scores[name]:.2f}{reasons}")
    say("Enter accepts, a key gives or takes a label, s skips, u undoes, q quits.")
