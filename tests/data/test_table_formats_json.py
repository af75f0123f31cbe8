"""JSONL: columns that come late, values of all kinds, and rows that are refused."""

import json

import pytest

from textcapsules.base.errors import DataError, collect_warnings
from textcapsules.data.table import stream_table


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write rows, which are then looked at three at a time."""
    monkeypatch.setattr("textcapsules.data.table_formats.CHUNK", 3)

    def write(*rows):
        path = tmp_path / "t.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return path

    return write


def column(path, name, batch_rows=2):
    batches = stream_table(path, batch_rows=batch_rows)
    return [cell for batch in batches for cell in batch.column(name).to_pylist()]


def test_column_of_a_late_row_is_kept(write):
    path = write(*[{"text": "x"}] * 7, {"text": "y", "note": "late"}, {"text": "z"})
    assert column(path, "note") == [None] * 7 + ["late", None]
    first = next(stream_table(path, batch_rows=2))
    assert first.schema.names == ["text", "note"]


KINDS = {
    "whole numbers, then parts": ([1, 2, 3, 4, 0.5], [1.0, 2.0, 3.0, 4.0, 0.5]),
    "numbers, then texts": ([1, 2, 3, "a"], ["1", "2", "3", "a"]),
    "nothing, then numbers": ([None, None, None, 4], [None, None, None, 4]),
    "nothing at all": ([None] * 4, [None] * 4),
    "a text, then lists": (["a", None, "b", ["c"]], [["a"], None, ["b"], ["c"]]),
    "lists of two kinds": ([[1], [2], [], ["a"]], [["1"], ["2"], [], ["a"]]),
    "lists in lists": ([[[1]], 2, [], ["a"]], [["[1]"], ["2"], [], ["a"]]),
    "fields that come late": (
        [{"a": 1}, {}, {}, {"b": 2}],
        [{"a": 1, "b": None}] + [{"a": None, "b": None}] * 2 + [{"a": None, "b": 2}],
    ),
    "fields of two kinds": (
        [{"a": 1}, None, None, {"a": "b"}],
        ['{"a": 1}', None, None, '{"a": "b"}'],
    ),
    "a number past 64 bits": ([1, 2, 3, 2**70], ["1", "2", "3", str(2**70)]),
    "truth and numbers": ([True, False, None, 1], ["true", "false", None, "1"]),
}


@pytest.mark.parametrize(("given", "expected"), KINDS.values(), ids=KINDS)
def test_one_type_fits_all_values_of_a_column(write, given, expected):
    path = write(*({"text": "x", "v": value} for value in given))
    for batch_rows in (1, 2, 100):
        assert column(path, "v", batch_rows) == expected


def test_lone_surrogates_are_replaced_counted_and_told(write):
    rows = [{"text": "x", "nan": float("nan")}] * 4
    rows += [{"text": "a\ud800b", "k": ["\udc00", {"\udc00": 1}]}, {"text": "😀\ud800"}]
    path = write(*rows)
    with collect_warnings() as warnings:
        texts = column(path, "text")
    assert texts == ["x"] * 4 + ["a\ufffdb", "😀\ufffd"]
    assert warnings == [
        f"{path}: 3 cells have half of a surrogate pair, which is no character, first "
        "in line 5; U+FFFD stands in its place."
    ]
    with collect_warnings() as warnings:
        column(write({"text": "😀"}), "text")  # a whole pair of escapes
    assert warnings == []


def test_column_named_with_a_lone_surrogate_is_refused(write):
    path = write({"text": "x"}, {"text": "x", "\ud800": 1})
    with pytest.raises(DataError, match=r"got '\\ud800' in line 2"):
        list(stream_table(path))


@pytest.mark.parametrize("depth", [61, 900, 100_000])
@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}")])
def test_value_nested_too_deep_is_refused(tmp_path, depth, left, right):
    path = tmp_path / "t.jsonl"
    value = left * depth + "1" + right * depth
    path.write_text(f'{{"text": "x"}}\n{{"text": "y", "v": {value}}}\n')
    with pytest.raises(DataError, match=r"more than 60 lists .*in line 2"):
        list(stream_table(path))


def test_value_nested_less_deep_is_read(write):
    value = json.loads("[" * 59 + "1" + "]" * 59)
    wide = [[1]] * 100
    path = write({"text": "x", "v": value, "w": wide})
    assert column(path, "v") == [value]
    assert column(path, "w") == [wide]
