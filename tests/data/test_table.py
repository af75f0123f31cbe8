"""Tables of every form, read, streamed, written, and broken."""

import csv
import gzip
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from textcapsules.base.errors import DataError, WriteError
from textcapsules.data.table import open_writer, read_table, stream_table

ROWS = [
    {"id": "007", "text": 'Line one\nline "two", three\t!', "label": " sport "},
    {"id": "1e5", "text": "日本語 😀", "label": "политика"},
    {"id": "NaN", "text": "NULL", "label": "1"},
]


def as_csv(path, rows, delimiter=",", encoding="utf-8"):
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def as_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


FORMS = {
    "t.csv": as_csv,
    "T.CSV": lambda path, rows: as_csv(path, rows, encoding="utf-8-sig"),
    "t.tsv": lambda path, rows: as_csv(path, rows, "\t"),
    "t.jsonl": as_jsonl,
    "t.ndjson": as_jsonl,
    "t.parquet": lambda path, rows: parquet.write_table(
        pa.Table.from_pylist(rows), path
    ),
}


@pytest.fixture(params=[*FORMS, "t.csv.gz", "t.jsonl.gz"])
def path(request, tmp_path):
    name = request.param.removesuffix(".gz")
    FORMS[name](tmp_path / name, ROWS)
    if name == request.param:
        return tmp_path / name
    (tmp_path / request.param).write_bytes(
        gzip.compress((tmp_path / name).read_bytes())
    )
    return tmp_path / request.param


def test_every_form_gives_the_same_examples(path):
    examples = read_table(path)
    assert [example.text for example in examples] == [row["text"] for row in ROWS]
    assert [example.labels for example in examples] == [
        ("sport",),
        ("политика",),
        ("1",),
    ]


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_stream_keeps_all_columns_as_they_are(path, batch_rows):
    batches = list(stream_table(path, batch_rows=batch_rows))
    assert max(batch.num_rows for batch in batches) <= batch_rows
    assert [row for batch in batches for row in batch.to_pylist()] == ROWS


def test_stream_may_select_columns(path):
    (batch,) = stream_table(path, columns=["id"])
    assert batch.schema.names == ["text", "id"]


# Characters that mean something in a table stand as often as all the others.
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(st.sampled_from(",;|\t\"'\r\n =\\\ufeff") | letters, max_size=12)


@st.composite
def tables(draw):
    """Draw a table of texts, its name, and what separates its cells."""
    names = draw(st.lists(texts.filter(bool), max_size=3, unique=True))
    names = ["text", *(name for name in names if name != "text")]
    rows = draw(
        st.lists(st.lists(texts, min_size=len(names), max_size=len(names)), min_size=1)
    )
    path = draw(st.sampled_from([*FORMS, "t.csv.gz", "t.jsonl.gz"]))
    delimiter = draw(st.sampled_from([None, ",", ";", "\t", "|"]))
    return path, names, rows, delimiter if "csv" in path.lower() else None


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(tables())
def test_what_is_written_is_read_again(tmp_path_factory, table):
    name, names, rows, delimiter = table
    path = tmp_path_factory.mktemp("t") / name
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    batch = pa.record_batch(columns, names=names)
    with open_writer(path, batch.schema, delimiter=delimiter) as writer:
        writer.write(batch.slice(0, 1))
        writer.write(batch.slice(1))
    for found in (None, delimiter):  # found in the file, and named
        parts = list(stream_table(path, batch_rows=2, delimiter=found))
        assert parts[0].schema.names == names
        assert [list(row.values()) for p in parts for row in p.to_pylist()] == rows


def test_separator_lists_and_numbers_are_labels(tmp_path):
    as_csv(tmp_path / "a.csv", [{"text": "x", "label": "a; b;;a"}])
    assert read_table(tmp_path / "a.csv", separator=";")[0].labels == ("a", "b")
    assert read_table(tmp_path / "a.csv")[0].labels == ("a; b;;a",)
    mixed = [["a", " b "], "c", 3, 2.0, 2.5, True]
    as_jsonl(tmp_path / "a.jsonl", [{"text": "x", "label": value} for value in mixed])
    labels = [example.labels for example in read_table(tmp_path / "a.jsonl")]
    assert labels == [("a", "b"), ("c",), ("3",), ("2.0",), ("2.5",), ("true",)]
    table = pa.table({"text": [1, 2], "label": [1.0, 2.5]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet") == [("1", ("1",)), ("2", ("2.5",))]


def test_other_column_names(tmp_path):
    as_csv(tmp_path / "a.csv", [{"body": "x", "topic": "y"}])
    examples = read_table(tmp_path / "a.csv", text_column="body", label_column="topic")
    assert examples == [("x", ("y",))]


def test_null_text_is_empty_for_prediction_and_an_error_for_training(tmp_path):
    as_jsonl(tmp_path / "a.jsonl", [{"text": "x", "label": "a"}, {"label": "a"}])
    (batch,) = stream_table(tmp_path / "a.jsonl")
    assert batch.column("text").to_pylist() == ["x", ""]
    with pytest.raises(DataError, match="got an empty cell of 'text' in row 2"):
        read_table(tmp_path / "a.jsonl")


def test_jsonl_columns_hold_together_over_batches(tmp_path):
    rows = [{"text": value, "k": 1} for value in (None, "a", 3)]
    as_jsonl(tmp_path / "a.jsonl", [*rows, {"text": "b", "k": 2**70}])
    for batch_rows in (1, 3, 100):
        batches = list(stream_table(tmp_path / "a.jsonl", batch_rows=batch_rows))
        read = [row for batch in batches for row in batch.to_pylist()]
        assert [row["text"] for row in read] == ["", "a", "3", "b"]
        assert [row["k"] for row in read] == ["1", "1", "1", str(2**70)]
    as_jsonl(tmp_path / "b.jsonl", [{"text": "x", "l": v} for v in ([], ["a"], "b")])
    batches = list(stream_table(tmp_path / "b.jsonl", batch_rows=1))
    assert [b.column("l").to_pylist() for b in batches] == [[[]], [["a"]], [["b"]]]


FAULTS = {
    "empty.csv": (b"", "got an empty one. Name a file"),
    "empty.jsonl": (b"", "must have rows; got none"),
    "empty.parquet": (
        b"",
        r"readable Parquet file; got an empty one\. Name a file with texts\.$",
    ),
    "header.csv": (b"text,label\n", "must have rows; got none"),
    "column.csv": (b"text,topic\nx,a\n", "one column 'label'; got text, topic"),
    "column.jsonl": (b'{"text": "x"}\n', "one column 'label'; got text"),
    "text.tsv": (b"body\tlabel\nx\ta\n", "one column 'text'; got body, label"),
    "twice.csv": (b"text,label,label\nx,a,b\n", "one column 'label'; got 2 of them"),
    "nolabel.csv": (b"text,label\nx,a\ny, \n", "got ' ' in 'label', row 2"),
    "null.jsonl": (b'\n{"text": "x", "label": null}\n', "got None in 'label', row 2"),
    "nan.jsonl": (b'{"text": "x", "label": NaN}\n', "got nan in 'label', row 1"),
    "list.jsonl": (b'{"text": "x", "label": []}\n', r"got \[\] in 'label', row 1"),
    "item.jsonl": (b'{"text": "x", "label": [null]}\n', "in 'label', row 1"),
    "notext.csv": (b"text,label\n,a\n", "empty cell of 'text' in row 1"),
    "utf8.csv": (b"text,label\nx,a\n\xff,a\n", "got a byte 0xff in line 3"),
    "header8.csv": (b"text,\xff\nx,a\n", "got a byte 0xff in line 1"),
    "utf8.jsonl": (b'{"text": "x"}\n{"\xe9": 1}\n', "got a byte 0xe9 in line 2"),
    "json.jsonl": (b'{"text": "x", "label": "a"}\n{"text"\n', "in line 2"),
    "array.jsonl": (b"[1]\n", r"one JSON object per line; got '\[1\]' in line 1"),
    "ragged.csv": (b"text,label\nx,a\ny\n", "got 1 cells instead of 2 in row 2"),
    "wide.csv": (b"text,label\nx,a,b\n", "got 3 cells instead of 2 in row 1"),
    "quote.csv": (b'text,label\nx,"a\ny,b\n', "mark never closed in row 1"),
    "damaged.parquet": (b"PAR1xxxxPAR1", r"readable Parquet file; got .*[^.]\.$"),
    "damaged.csv.gz": (b"text,label\n", "readable CSV"),
    "cut.jsonl.gz": (gzip.compress(b'{"text": "x"}\n' * 99)[:-9], "readable JSONL"),
    "nested.jsonl": (
        b'{"text": ["x"], "label": "a"}\n',
        "texts in column 'text'; got list",
    ),
    "table.xlsx": (b"", r"must end in .csv, .*got '.xlsx'"),
    "table.parquet.gz": (b"", "must end in .csv"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_get_one_clear_line(tmp_path, name):
    content, message = FAULTS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_table(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_missing_file_and_empty_stream_are_refused(tmp_path):
    with pytest.raises(DataError, match="must be a file; got no such file"):
        read_table(tmp_path / "nope.csv")
    (tmp_path / "a.csv").write_text("text\n")
    with pytest.raises(DataError, match="must have rows"):
        list(stream_table(tmp_path / "a.csv"))


def test_rows_are_counted_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("textcapsules.data.table_formats.BLOCK", 64)
    rows = [{"text": f"text {i}", "label": "a"} for i in range(50)]
    as_csv(tmp_path / "a.csv", [*rows, {"text": "x", "label": ""}])
    with pytest.raises(DataError, match="row 51"):
        read_table(tmp_path / "a.csv")
    as_csv(tmp_path / "b.csv", [*rows, {"text": "x" * 500, "label": "a"}])
    with pytest.raises(DataError, match="straddles"):
        read_table(tmp_path / "b.csv")


def test_memory_does_not_grow_with_a_parquet_file(tmp_path):
    path = tmp_path / "t.parquet"
    schema = pa.schema([("text", pa.string())])
    draw = np.random.default_rng(0)
    with parquet.ParquetWriter(path, schema) as writer:
        for _ in range(20):  # of 1 MB each, which nothing compresses
            texts = [draw.bytes(500).hex() for _ in range(1000)]
            writer.write_batch(pa.record_batch({"text": texts}))
    held, before = [], pa.total_allocated_bytes()
    for _ in stream_table(path, text_column="text", batch_rows=1000):
        held.append(pa.total_allocated_bytes() - before)
    assert len(held) == 20
    assert max(held) < 6e6


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_writer_is_atomic_and_overwrites_only_when_told(tmp_path, name):
    batch = pa.record_batch({"text": ["x"], "labels": [["a", "b"]]})
    path = tmp_path / name
    with pytest.raises(KeyError), open_writer(path, batch.schema) as writer:
        writer.write(batch)
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with open_writer(path, batch.schema) as writer:
        writer.write(batch)
    before = path.read_bytes()
    with (
        pytest.raises(WriteError, match="must not exist yet; got an existing file"),
        open_writer(path, batch.schema),
    ):
        pass
    assert path.read_bytes() == before
    with open_writer(path, batch.schema, overwrite=True):
        pass
    assert path.read_bytes() != before


def test_csv_takes_lists_as_json(tmp_path):
    batch = pa.record_batch({"text": ["x", "y"], "labels": [["a", "б"], None]})
    with open_writer(tmp_path / "t.csv", batch.schema) as writer:
        writer.write(batch)
    (read,) = stream_table(tmp_path / "t.csv")
    assert read.column("labels").to_pylist() == ['["a", "б"]', ""]


def test_writer_refuses_unknown_endings(tmp_path):
    with (
        pytest.raises(DataError, match=r"must end in .csv"),
        open_writer(tmp_path / "t.xlsx", pa.schema([])),
    ):
        pass


def test_column_that_parquet_cannot_hold_is_told(tmp_path):
    as_jsonl(tmp_path / "t.jsonl", [{"text": "x", "meta": {}}])
    (batch,) = stream_table(tmp_path / "t.jsonl")
    with (
        pytest.raises(DataError, match=r"that Parquet can hold; got .*'meta'"),
        open_writer(tmp_path / "t.parquet", batch.schema),
    ):
        pass
    assert not (tmp_path / "t.parquet").exists()
