"""The log of decisions and the tables made from it."""

import json
import multiprocessing
from pathlib import Path

import pytest

from textcapsules.base.errors import DataError, WriteError, collect_warnings
from textcapsules.data.reviews import (
    Review,
    ReviewLog,
    export_reviews,
    log_path,
    read_reviews,
)

MODEL = "0123456789abcdef"
COLUMNS = {"text_column": "text", "label_column": "label"}


def label(log: ReviewLog, text: str, *labels: str, place: int = 0) -> str:
    return log.append("label", text=text, labels=labels, pool="p", place=place).id


def test_the_last_decision_wins_and_undo_brings_back_the_one_before(
    tmp_path: Path,
) -> None:
    log = ReviewLog(tmp_path / "r.csv.log.jsonl", MODEL)
    label(log, "one", "a")
    label(log, "two", place=1)
    label(log, "one", "b", "c")
    assert [tuple(each) for each in log.reviews()] == [
        ("one", ("b", "c"), True),
        ("two", (), True),
    ]
    log.undo()
    assert log.reviews()[0].labels == ("a",)
    log.undo()
    assert [each.text for each in log.reviews()] == ["one"]
    log.append("skip", text="one", pool="p", place=0)
    assert log.reviews() == []
    # Nothing is ever removed, and another process reads the same.
    assert len(log.path.read_text().splitlines()) == 6
    assert ReviewLog(log.path, MODEL).decided() == log.decided()


def test_undo_of_nothing_is_nothing(tmp_path: Path) -> None:
    log = ReviewLog(tmp_path / "r.log.jsonl", MODEL)
    assert log.undo() is None
    assert not log.path.exists()
    first = label(log, "one", "a")
    assert log.undo(first) is not None
    assert log.undo(first) is None


def test_texts_at_the_first_places_are_the_random_sample(tmp_path: Path) -> None:
    log = ReviewLog(tmp_path / "r.log.jsonl", MODEL)
    for place in (0, 1, 3, 9):
        label(log, f"text {place}", "a", place=place)
    drawn = {each.text: each.is_random for each in log.reviews()}
    assert [drawn[f"text {place}"] for place in (0, 1, 3, 9)] == [1, 1, 0, 0]
    log.append("skip", text="text 2", pool="p", place=2)
    assert [each.is_random for each in log.reviews()] == [True, True, True, False]


def test_a_line_cut_short_costs_that_line_alone(tmp_path: Path) -> None:
    log = ReviewLog(tmp_path / "r.log.jsonl", MODEL)
    label(log, "one", "a")
    with log.path.open("ab") as file:
        file.write(b'{"id": "1", "action": "label", "text": "tw')
    with collect_warnings() as warnings:
        label(log, "three", "b", place=1)
    assert [each.text for each in log.reviews()] == ["one", "three"]
    assert len(warnings) == 1
    assert "left out" in warnings[0]


def write_many(path: Path, name: str) -> None:
    log = ReviewLog(path, MODEL)
    for number in range(30):
        label(log, f"{name} {number}" + " long" * 3000, "a")


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.log.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=write_many, args=(path, n)) for n in "xyz"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["text"] for line in lines}) == 90


def test_a_log_of_another_model_is_refused(tmp_path: Path) -> None:
    log = ReviewLog(tmp_path / "r.csv.log.jsonl", MODEL)
    label(log, "one", "a")
    with pytest.raises(DataError, match="of this model"):
        ReviewLog(log.path, "fedcba9876543210")
    with pytest.raises(DataError, match="nothing was changed"):
        read_reviews(log.path, model="fedcba9876543210")


@pytest.mark.parametrize("name", ["r.csv", "r.tsv", "r.jsonl", "r.parquet"])
@pytest.mark.parametrize("labels", [("a", "b"), ("a;b", "[c]", "d, e")])
def test_an_export_is_read_as_it_was_decided(
    tmp_path: Path, name: str, labels: tuple[str, ...]
) -> None:
    path = tmp_path / name
    log = ReviewLog(log_path(path), MODEL)
    label(log, 'quoted "text", in\ntwo lines', *labels)
    label(log, "none", place=1)
    label(log, "far", labels[0], place=7)
    assert export_reviews(log, path, **COLUMNS) == 3
    expected = [
        Review('quoted "text", in\ntwo lines', labels, True),
        Review("none", (), True),
        Review("far", labels[:1], False),
    ]
    assert read_reviews(path, model=MODEL) == expected
    assert read_reviews(log.path, model=MODEL) == expected


def test_an_export_replaces_only_exports(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    log = ReviewLog(log_path(path), MODEL)
    label(log, "one", "a")
    export_reviews(log, path, **COLUMNS)
    label(log, "two", "a", place=1)
    export_reviews(log, path, **COLUMNS)
    edited = path.read_text() + "mine,b,random\n"
    path.write_text(edited)
    with pytest.raises(WriteError, match="other content"):
        export_reviews(log, path, **COLUMNS)
    assert path.read_text() == edited
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "r.csv",
        "r.csv.log.jsonl",
    ]


def test_a_changed_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    log = ReviewLog(log_path(path), MODEL)
    label(log, "one", "a")
    export_reviews(log, path, **COLUMNS)
    path.write_text("text,label,drawn\none more,a,random\n")
    with pytest.raises(DataError, match=r"another text in row 1.*nothing was changed"):
        read_reviews(path, model=MODEL)


def test_a_users_own_table(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("body,topics\nfirst,a|b\nsecond,\nfirst,b\n")
    columns = {"text_column": "body", "label_column": "topics", "separator": "|"}
    assert read_reviews(path, **columns) == [
        Review("first", ("b",)),
        Review("second", ()),
    ]
    path.write_text("body,topics\nfirst,a\n ,b\n")
    with pytest.raises(DataError, match=r"a text in each row.*row 2"):
        read_reviews(path, **columns)
