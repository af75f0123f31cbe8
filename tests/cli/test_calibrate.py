"""`textcapsules calibrate`, and training with reviewed texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from textcapsules.model.classifier import TextClassifier
from toy import TINY, model_copy, refusal, run_cli, toy_file, toy_rows, write_csv


def reviewed(folder: Path, n_rows: int = 12) -> Path:
    rows = [(text, f"{topic}") for text, topic in toy_rows(n_rows, seed=9)]
    return write_csv(folder / "reviewed.csv", rows)


def calibrate(*args: object) -> dict[str, Any]:
    ran = run_cli("calibrate", *args, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out.splitlines()[-1])


def thresholds(folder: Path) -> tuple[float, ...]:
    return TextClassifier.load(folder, "cpu").labels.thresholds


def test_looks_then_writes_then_undoes(tmp_path: Path) -> None:
    model, data = model_copy(tmp_path), reviewed(tmp_path)
    before = thresholds(model)
    values = calibrate(model, "--data", data)
    assert values["written"] is None
    assert values["value_before"]["texts"] == values["texts"] == 12
    assert thresholds(model) == before
    values = calibrate(model, "--data", data, "--in-place")
    assert thresholds(model) == tuple(values["after"]) != before
    record = TextClassifier.load(model, "cpu").record
    assert record["calibration"]["on"] == "12 reviewed texts"  # as `evaluate` says
    calibrate(model, "--undo")
    assert thresholds(model) == before
    values = calibrate(model, "--data", data, "--out", tmp_path / "new")
    assert thresholds(tmp_path / "new") == tuple(values["after"])
    assert thresholds(model) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na bird,fish\n", "label must be one of birds, cats, dogs"),
        ("text,label\n,cats\n", "must have a text in each row"),
        ("text,topic\na bird,birds\n", "label"),
        ("text,label\n", "got none"),
    ],
)
def test_bad_reviews_change_nothing(tmp_path: Path, content: str, message: str) -> None:
    model, data = model_copy(tmp_path), tmp_path / "bad.csv"
    data.write_text(content)
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    assert message in refusal("calibrate", model, "--data", data, "--in-place")
    assert {path.name: path.read_bytes() for path in model.iterdir()} == files


def test_options_that_contradict(tmp_path: Path) -> None:
    model, data = model_copy(tmp_path), reviewed(tmp_path)
    assert "data must be" in refusal("calibrate", model)
    assert "undo must stand alone" in refusal(
        "calibrate", model, "--undo", "--data", data
    )
    assert "got both" in refusal(
        "calibrate", model, "--data", data, "--in-place", "--out", tmp_path / "new"
    )
    assert "former thresholds" in refusal("calibrate", model, "--undo")


def test_training_with_reviewed_texts(tmp_path: Path) -> None:
    old = toy_file(tmp_path)
    text = toy_rows(60)[0][0]  # labelled birds in the old file
    rows = [(text, "cats; dogs"), ("bark and purr, purr", ""), ("new feather", "birds")]
    added = write_csv(tmp_path / "reviewed.csv", rows)
    out = tmp_path / "model"
    ran = run_cli("train", "--data", old, "--add", added, *TINY, "--out", out, "--json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out.splitlines()[-1])
    assert record["corpus"]["added"]["texts"] == 3
    assert record["corpus"]["added"]["replaced"] == 1
    assert sum(record["texts"].values()) == 62
    assert TextClassifier.load(out, "cpu").labels.task == "multi-label"
    # Other corrections are other data, which a resumed run would notice.
    write_csv(added, [*rows, ("one more", "cats")])
    other = tmp_path / "other"
    ran = run_cli(
        "train", "--data", old, "--add", added, *TINY, "--out", other, "--json"
    )
    again = json.loads(ran.out.splitlines()[-1])
    assert again["fingerprint"] != record["fingerprint"]
    write_csv(added, [("a fish", "fish")])
    message = refusal(
        "train", "--data", old, "--add", added, *TINY, "--out", tmp_path / "no"
    )
    assert "must have labels of toy.csv: birds, cats, dogs; got 'fish'" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("body,label\na bird,birds\n", "must have one column 'text'"),
        ("text,label\n,birds\n", "must have a text in each row"),
        ("text,label\n", "must hold reviewed texts"),
        ("", "must be a readable CSV file"),
    ],
)
def test_bad_corrections_train_nothing(
    tmp_path: Path, content: str, message: str
) -> None:
    old, added, out = toy_file(tmp_path), tmp_path / "bad.csv", tmp_path / "model"
    added.write_text(content)
    asked = ("train", "--data", old, "--add", added, *TINY, "--out", out)
    assert message in refusal(*asked)
    assert not out.exists()
