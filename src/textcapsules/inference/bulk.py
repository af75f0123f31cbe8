"""Predict whole files, batch by batch, in memory that does not grow with the file.

What reads and writes files is imported where it is used: texts from a command or a pipe
need none of it.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from textcapsules.base.errors import DataError
from textcapsules.model.classifier import TextClassifier
from textcapsules.text.encode import Cuts

if TYPE_CHECKING:
    import pyarrow as pa

    from textcapsules.data.table_formats import TextFormat

__all__ = [
    "Decision",
    "Summary",
    "label_batch",
    "predict_lines",
    "predict_table",
    "predicted_batches",
    "write_batches",
]

PREDICTED = "predicted"
FLAT_FORMS = ("csv", "tsv")
OUTSIDE, WORDS_KNOWN, WORDS_READ = "outside", "words_known", "words_read"


class Decision(NamedTuple):
    """How scores become labels and columns."""

    multi_label: bool | None = None
    threshold: float | None = None
    scores: bool = False  # add columns with scores, and with counts of known words
    separator: str = "; "  # between labels, where a cell cannot hold a list
    counts: bool = False  # add columns with counts of known words only
    refuse: bool = True  # give texts outside the training topics no label


class Summary(NamedTuple):
    """How many texts were predicted, and how."""

    texts: int
    without_label: int
    unreadable: int  # empty, or not one known word
    cut: Cuts = Cuts()  # texts longer than the model reads
    outside: int = 0  # outside the training topics


def label_batch(
    classifier: TextClassifier, texts: list[str], decision: Decision
) -> tuple[dict[str, list[list[str]] | NDArray], Summary]:
    """Return the new columns for some texts."""
    scores, known, words, cuts, outside = classifier.read(texts)
    chosen = classifier.decide(
        scores,
        multi_label=decision.multi_label,
        threshold=decision.threshold,
        outside=outside if decision.refuse else None,
    )
    labels = classifier.names_of_each(scores, chosen)
    columns: dict[str, Any] = {
        PREDICTED: [list(names) for names in labels],
        OUTSIDE: outside,
    }
    if decision.scores:
        for place, name in enumerate(classifier.labels.names):
            columns[f"score_{name}"] = scores[:, place]
    if decision.scores or decision.counts:
        columns[WORDS_KNOWN], columns[WORDS_READ] = known, words
    empty = sum(not names for names in labels)
    unreadable = int((~(scores > 0).any(1)).sum())
    return columns, Summary(len(texts), empty, unreadable, cuts, int(outside.sum()))


def predict_table(
    classifier: TextClassifier,
    source: Path | str,
    target: Path | str | Callable[[dict[str, Any]], None],
    *,
    text_column: str = "text",
    decision: Decision = Decision(),
    overwrite: bool = False,
    on_rows: Callable[[int], None] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    excel_safe: bool = False,
) -> Summary:
    """Add predictions to every row of a file.

    Args:
        classifier: the model.
        source: a CSV, TSV, JSONL or Parquet file of any size.
        target: the file to write, whose ending tells the format; or a function that
            is called with every row.
        text_column: the column to read.
        decision: how scores become labels.
        overwrite: replace the target if it is there.
        on_rows: called with the number of rows done, batch by batch.
        delimiter: the character between cells of CSV or TSV; by default detected in
            the file. A CSV file made from a CSV file has the same.
        encoding: of a text file; by default UTF-8, or what a byte order mark says.
        excel_safe: put a single quote before texts of CSV or TSV that a spreadsheet
            would take for formulas.
    """
    from textcapsules.data.table import stream_table
    from textcapsules.data.table_formats import TextFormat, settle_format

    given = TextFormat(delimiter, encoding)
    settled = settle_format(Path(source), (text_column,), given)
    table = stream_table(source, text_column=text_column, **settled._asdict())
    return write_batches(
        predicted_batches(classifier, table, text_column, decision),
        target,
        decision,
        overwrite,
        on_rows,
        out_delimiter(source, target, settled),
        excel_safe,
    )


def out_delimiter(
    source: Path | str, target: Path | str | Callable, settled: "TextFormat"
) -> str | None:
    """Return the delimiter to write: that of the source, if both files are CSV."""
    from textcapsules.data.table_formats import form_of

    if callable(target) or form_of(Path(target)) != "csv":
        return None
    return settled.delimiter if form_of(Path(source)) == "csv" else None


def write_batches(
    batches: Iterator[tuple["pa.RecordBatch", Summary]],
    target: Path | str | Callable[[dict[str, Any]], None],
    decision: Decision,
    overwrite: bool,
    on_rows: Callable[[int], None] | None,
    delimiter: str | None = None,
    excel_safe: bool = False,
) -> Summary:
    """Write predicted batches to a file, or hand their rows to a function."""
    if callable(target):
        return pass_rows(batches, target, on_rows)
    from textcapsules.data.table import open_writer
    from textcapsules.data.table_formats import form_of

    flat = form_of(Path(target)) in FLAT_FORMS
    first, summary = next(batches)
    first = flatten(first, decision.separator) if flat else first
    with open_writer(
        target,
        first.schema,
        overwrite=overwrite,
        delimiter=delimiter,
        excel_safe=excel_safe,
    ) as writer:
        writer.write(first)
        notify(on_rows, first.num_rows)
        for batch, part in batches:
            writer.write(flatten(batch, decision.separator) if flat else batch)
            summary = add(summary, part)
            notify(on_rows, batch.num_rows)
    return summary


def pass_rows(
    batches: Iterator[tuple["pa.RecordBatch", Summary]],
    target: Callable[[dict[str, Any]], None],
    on_rows: Callable[[int], None] | None,
) -> Summary:
    """Hand every row to a function."""
    summary = Summary(0, 0, 0)
    for batch, part in batches:
        for row in batch.to_pylist():
            target(row)
        summary = add(summary, part)
        notify(on_rows, batch.num_rows)
    return summary


def predicted_batches(
    classifier: TextClassifier,
    batches: Iterable["pa.RecordBatch"],
    text_column: str,
    decision: Decision,
) -> Iterator[tuple["pa.RecordBatch", Summary]]:
    """Yield each batch with its predictions as further columns."""
    import pyarrow as pa

    for batch in batches:
        texts = batch.column(text_column).to_pylist()
        columns, summary = label_batch(classifier, texts, decision)
        for name, column in columns.items():
            if name in batch.schema.names:
                raise DataError(
                    f"the file must not have a column {name!r}, where predictions go; "
                    "got one. Rename it first."
                )
            kind = pa.list_(pa.string()) if name == PREDICTED else None
            batch = batch.append_column(name, pa.array(column, kind))
        yield batch, summary


def predict_lines(
    classifier: TextClassifier,
    lines: Iterable[str],
    target: Callable[[dict[str, Any]], None],
    *,
    decision: Decision = Decision(),
    batch_rows: int = 256,
) -> Summary:
    """Predict one text per line, as from a pipe."""
    lines, summary = iter(lines), Summary(0, 0, 0)
    while texts := [line.rstrip("\r\n") for line in islice(lines, batch_rows)]:
        columns, part = label_batch(classifier, texts, decision)
        cells = [
            column if isinstance(column, list) else column.tolist()
            for column in columns.values()
        ]
        for text, *values in zip(texts, *cells, strict=True):
            target({"text": text, **dict(zip(columns, values, strict=True))})
        summary = add(summary, part)
    return summary


def flatten(batch: "pa.RecordBatch", separator: str) -> "pa.RecordBatch":
    """Join the predicted labels into one cell."""
    import pyarrow as pa

    place = batch.schema.get_field_index(PREDICTED)
    cells = [separator.join(names) for names in batch.column(place).to_pylist()]
    return batch.set_column(place, PREDICTED, pa.array(cells, pa.string()))


def add(one: Summary, other: Summary) -> Summary:
    """Add up two summaries."""
    return Summary(
        one.texts + other.texts,
        one.without_label + other.without_label,
        one.unreadable + other.unreadable,
        one.cut.plus(other.cut),
        one.outside + other.outside,
    )


def notify(on_rows: Callable[[int], None] | None, n_rows: int) -> None:
    """Tell a progress bar, if there is one."""
    if on_rows is not None:
        on_rows(n_rows)
