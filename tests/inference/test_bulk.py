import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from textcapsules.base.errors import DataError, WriteError
from textcapsules.data import table, table_formats
from textcapsules.data.table import TableWriter
from textcapsules.data.table_formats import UNSPECIFIED
from textcapsules.inference.bulk import Decision, predict_lines, predict_table
from textcapsules.model.classifier import Labels, TextClassifier
from toy import OFF_TOPIC, TOPICAL, TOPICS, refusing_model, toy_rows, trained_model

FORMS = ["csv", "tsv", "jsonl", "ndjson", "parquet", "csv.gz", "tsv.gz", "jsonl.gz"]
ROWS = [
    {"id": str(number), "text": text, "note": f'é "{number}", 日本'}
    for number, (text, _) in enumerate(toy_rows(11))
]
ROWS[4]["text"], ROWS[5]["text"] = "", "zzz qqq"


@pytest.fixture(scope="module")
def classifier() -> TextClassifier:
    return TextClassifier.load(trained_model())


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a table with nothing of the code under test."""
    name = path.name.removesuffix(".gz")
    if name.endswith("parquet"):
        parquet.write_table(pa.Table.from_pylist(rows), path)
        return path
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        if "json" in name:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            delimiter = "\t" if name.endswith("tsv") else ","
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a table with nothing of the code under test."""
    name = path.name.removesuffix(".gz")
    if name.endswith("parquet"):
        return parquet.read_table(path).to_pylist()
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        if "json" in name:
            return [json.loads(line) for line in file]
        delimiter = "\t" if name.endswith("tsv") else ","
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_keeps_rows_and_columns(classifier, tmp_path, form):
    source = write_rows(tmp_path / f"in.{form}", ROWS)
    summary = predict_table(classifier, source, tmp_path / "out.jsonl")
    found = read_rows(tmp_path / "out.jsonl")
    expected = classifier.predict([row["text"] for row in ROWS])
    assert [{k: row[k] for k in ROWS[0]} for row in found] == ROWS
    assert [row["predicted"] for row in found] == [list(p.labels) for p in expected]
    assert summary[:3] == (11, 2, 2)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_out_holds_labels_and_scores(classifier, tmp_path, form):
    source, target = write_rows(tmp_path / "in.csv", ROWS), tmp_path / f"out.{form}"
    decision = Decision(threshold=0.01, scores=True, separator=" | ")
    predict_table(classifier, source, target, decision=decision)
    found = read_rows(target)
    names = [f"score_{name}" for name in TOPICS]
    counts = ["words_known", "words_read"]
    assert list(found[0]) == [
        "id",
        "text",
        "note",
        "predicted",
        "outside",
        *names,
        *counts,
    ]
    texts = [row["text"] for row in ROWS]
    expected = classifier.predict(texts, threshold=0.01)
    assert max(len(p.labels) for p in expected) > 1  # or the separator goes untested
    labels = [list(prediction.labels) for prediction in expected]
    is_flat = form.startswith(("csv", "tsv"))
    cells = [" | ".join(part) for part in labels] if is_flat else labels
    assert [row["predicted"] for row in found] == cells
    scores = np.array([[row[name] for name in names] for row in found], np.float32)
    # Arrow writes the shortest decimals that give the same single-precision number
    assert np.array_equal(scores, classifier.scores(texts))
    counted = [[int(row[name]) for name in counts] for row in found]
    assert counted == [[p.known, p.words] for p in expected]


def test_labels_of_any_script_come_through(classifier, tmp_path):
    names = ("Vögel, klein", 'ネコ "x"', "[/كلاب]")
    labels = Labels(names, (0.01,) * 3, "multi-label")
    other = TextClassifier(
        classifier.config, classifier.tokenizer, labels, classifier.network
    )
    source = write_rows(tmp_path / "in.csv", ROWS[:3])
    for form in ("csv", "tsv", "jsonl", "parquet"):
        target = tmp_path / f"out.{form}"
        predict_table(other, source, target, decision=Decision(scores=True))
        found = read_rows(target)
        assert list(found[0])[5:-2] == [f"score_{name}" for name in names]
        flat = form in ("csv", "tsv")
        expected = [p.labels for p in other.predict([r["text"] for r in ROWS[:3]])]
        cells = ["; ".join(p) if flat else list(p) for p in expected]
        assert [row["predicted"] for row in found] == cells


def test_missing_text_counts_as_empty(classifier, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "my cat"}\n{"text": null}\n{"id": 3}\n')
    summary = predict_table(classifier, source, tmp_path / "out.jsonl")
    found = read_rows(tmp_path / "out.jsonl")
    assert [len(row["predicted"]) for row in found] == [1, 0, 0]
    assert summary.unreadable == 2


def spied(monkeypatch, n_batches: int, events: list[str], fail_at: int | None = None):
    """Let the table come in batches of two rows, telling when each is asked for."""

    def stream(path, **_):
        for number in range(n_batches):
            events.append(f"read {number}")
            if number == fail_at:
                raise DataError("in.csv must be readable; got a broken row.")
            yield pa.record_batch({"text": pa.array(["my cat purr", "a dog"])})

    monkeypatch.setattr(table, "stream_table", stream)
    monkeypatch.setattr(table_formats, "settle_format", lambda *_: UNSPECIFIED)


def test_batches_are_written_before_the_next_is_read(classifier, tmp_path, monkeypatch):
    events: list[str] = []
    spied(monkeypatch, 4, events)
    write = TableWriter.write

    def spy(self, batch):
        events.append("write")
        return write(self, batch)

    monkeypatch.setattr(TableWriter, "write", spy)
    done: list[int] = []
    summary = predict_table(
        classifier, "in.csv", tmp_path / "out.csv", on_rows=done.append
    )
    assert events == [e for n in range(4) for e in (f"read {n}", "write")]
    assert done == [2, 2, 2, 2]
    assert summary.texts == len(read_rows(tmp_path / "out.csv")) == 8


def test_rows_are_passed_on_before_the_next_batch_is_read(classifier, monkeypatch):
    events: list[str] = []
    spied(monkeypatch, 3, events)
    predict_table(classifier, "in.csv", lambda row: events.append("row"))
    assert events == [e for n in range(3) for e in (f"read {n}", "row", "row")]


def test_lines_are_read_a_batch_at_a_time(classifier):
    events: list[str] = []

    def lines():
        for number in range(5):
            events.append(f"read {number}")
            yield "my cat purr\r\n"

    summary = predict_lines(
        classifier, lines(), lambda row: events.append("row"), batch_rows=2
    )
    expected = ["read 0", "read 1", "row", "row", "read 2", "read 3", "row", "row"]
    assert events == [*expected, "read 4", "row"]
    assert summary.texts == 5


def test_lines_lose_only_their_ending(classifier):
    rows: list[dict[str, Any]] = []
    predict_lines(classifier, [" my cat \r\n", "\n", "last"], rows.append)
    assert [row["text"] for row in rows] == [" my cat ", "", "last"]


@pytest.mark.parametrize("old", [None, "old content"])
def test_failure_in_the_middle_leaves_the_old_file(
    classifier, tmp_path, monkeypatch, old
):
    target = tmp_path / "out.csv"
    if old is not None:
        target.write_text(old)
    spied(monkeypatch, 3, [], fail_at=2)
    with pytest.raises(DataError, match="got a broken row"):
        predict_table(classifier, "in.csv", target, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == (
        [] if old is None else ["out.csv"]
    )
    assert old is None or target.read_text() == old


def test_existing_file_is_kept_unless_overwrite(classifier, tmp_path):
    source = write_rows(tmp_path / "in.csv", ROWS)
    target = tmp_path / "out.csv"
    target.write_text("mine")
    with pytest.raises(WriteError, match=r"out.csv must not exist yet"):
        predict_table(classifier, source, target)
    assert target.read_text() == "mine"
    predict_table(classifier, source, target, overwrite=True)
    assert len(read_rows(target)) == len(ROWS)


def test_file_may_be_its_own_target(classifier, tmp_path):
    path = write_rows(tmp_path / "in.csv", ROWS)
    predict_table(classifier, path, path, overwrite=True)
    assert [row["id"] for row in read_rows(path)] == [row["id"] for row in ROWS]


@pytest.mark.parametrize("column", ["predicted", "score_cats", "words_known"])
def test_column_in_the_way_is_told(classifier, tmp_path, column):
    source = write_rows(tmp_path / "in.csv", [{"text": "my cat", column: "mine"}])
    with pytest.raises(DataError, match=f"must not have a column '{column}'"):
        decision = Decision(scores=True)
        predict_table(classifier, source, tmp_path / "out.csv", decision=decision)
    assert not (tmp_path / "out.csv").exists()


def test_unknown_ending_is_refused(classifier, tmp_path):
    source = write_rows(tmp_path / "in.csv", ROWS)
    with pytest.raises(DataError, match=r"out.xlsx must end in \.csv"):
        predict_table(classifier, source, tmp_path / "out.xlsx")
    assert not (tmp_path / "out.xlsx").exists()


def test_text_column_by_name(classifier, tmp_path):
    source = write_rows(tmp_path / "in.csv", [{"text": "zzz", "body": "my cat purr"}])
    predict_table(classifier, source, tmp_path / "out.csv", text_column="body")
    assert read_rows(tmp_path / "out.csv")[0]["predicted"] == "cats"
    with pytest.raises(DataError, match=r"one column 'title'; got text, body"):
        predict_table(classifier, source, tmp_path / "no.csv", text_column="title")


def test_texts_outside_are_marked_and_counted():
    model = TextClassifier.load(refusing_model())
    rows: list[dict] = []
    given = [TOPICAL, OFF_TOPIC, ""]
    summary = predict_lines(model, given, rows.append, decision=Decision(scores=True))
    assert [row["outside"] for row in rows] == [False, True, False]
    assert [bool(row["predicted"]) for row in rows] == [True, False, False]
    assert rows[1]["score_cats"] > 0
    assert (summary.outside, summary.without_label, summary.unreadable) == (1, 2, 1)
    kept: list[dict] = []
    predict_lines(model, given, kept.append, decision=Decision(refuse=False))
    assert [row["outside"] for row in kept] == [False, True, False]
    assert [bool(row["predicted"]) for row in kept] == [True, True, False]
