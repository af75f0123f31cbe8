"""`textcapsules review`, from keys to files."""

import csv
import json
import os
import pty
import shlex
import time
from pathlib import Path

import pytest

from textcapsules.data.reviews import log_path
from textcapsules.model.classifier import TextClassifier
from toy import model_copy, refusal, run_cli, spawn, toy_rows, trained_model, write_csv


def new_texts(folder: Path, n_rows: int = 12) -> Path:
    return write_csv(
        folder / "new.csv", [[t] for t, _ in toy_rows(n_rows, 3)], ["text"]
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_keys_decide(tmp_path: Path) -> None:
    out = tmp_path / "reviewed.csv"
    asked = ("review", trained_model(), "--data", new_texts(tmp_path), "--out", out)
    # Toggling all three labels twice changes nothing; then: skip, undo it, accept.
    ran = run_cli(*asked, "--json", stdin=b"123123\n1\ns\nu\n\nq\n")
    assert ran.code == 0, ran.err
    values = json.loads(ran.out.splitlines()[-1])
    assert (values["reviewed"], values["skipped"], values["left"]) == (3, 0, 9)
    log = [json.loads(line) for line in log_path(out).read_text().splitlines()]
    actions = [line["action"] for line in log]
    assert actions == ["label", "label", "skip", "undo", "label", "export"]
    assert log[2]["text"] == log[4]["text"]
    classifier = TextClassifier.load(trained_model(), "cpu")
    given = set(classifier.predict(log[0]["text"], multi_label=True).labels)
    assert set(log[0]["labels"]) == given
    assert [row["text"] for row in rows(out)] == [log[k]["text"] for k in (0, 1, 4)]
    # A second review goes on where the first ended, until no text is left.
    ran = run_cli(*asked, stdin=b"\n" * 20)
    assert "All texts are decided." in ran.out
    assert "12 reviewed: all labels right in" not in ran.out  # each tenth of a session
    assert f"textcapsules calibrate {trained_model()} --data {out}" in ran.out
    assert f"--add {out}" in ran.out
    assert len(rows(out)) == 12


def test_the_suggested_training_names_the_columns_of_the_first(tmp_path: Path) -> None:
    table = tmp_path / "tickets.csv"
    table.write_text(
        "topic,the message\n"
        + "".join(f"{label},{text}\n" for text, label in toy_rows(60))
    )
    columns = ("--text-column", "the message", "--label-column", "topic")
    ran = run_cli(
        "train", "--data", table, *columns, "--preset", "paper", "--epochs", 1,
        "--task", "multi-label", "--out", tmp_path / "model",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    out = tmp_path / "reviewed.csv"
    ran = run_cli(
        "review", tmp_path / "model", "--data", table, "--out", out, stdin=b"\n" * 3
    )
    assert ran.code == 0, ran.err
    suggested = ran.out[ran.out.index("textcapsules train") :].splitlines()[0]
    ran = run_cli(*shlex.split(suggested)[1:-1], tmp_path / "again", "--epochs", 1)
    assert ran.code == 0, ran.err


def test_after_ten_texts_it_says_what_to_expect(tmp_path: Path) -> None:
    out = tmp_path / "reviewed.csv"
    asked = ("review", trained_model(), "--data", new_texts(tmp_path), "--out", out)
    ran = run_cli(*asked, stdin=b"\n" * 10)
    assert "10 reviewed: all labels right in" in ran.out
    assert "Thresholds: birds" in ran.out


def test_quitting_at_once_offers_no_file_that_is_not_there(tmp_path: Path) -> None:
    out = tmp_path / "reviewed.csv"
    asked = ("review", trained_model(), "--data", new_texts(tmp_path), "--out", out)
    ran = run_cli(*asked, stdin=b"q\n")
    assert ran.code == 0 and "No text was reviewed." in ran.out
    assert "calibrate" not in ran.out
    assert not out.exists()


@pytest.mark.parametrize(
    ("line", "key"), [("x", "x"), ("99", "9"), ("1x", "x"), ("1s", "s"), ("qq", "q")]
)
def test_a_line_that_is_no_decision_accepts_nothing(
    tmp_path: Path, line: str, key: str
) -> None:
    out = tmp_path / "reviewed.csv"
    asked = ("review", trained_model(), "--data", new_texts(tmp_path), "--out", out)
    ran = run_cli(*asked, stdin=f"\n\n{line}\n\nq\n".encode())
    assert ran.code == 2
    (told,) = ran.err.splitlines()
    assert "line 3 must be keys of labels (1 to 3)" in told
    assert f"got {line!r}, of which {key!r} is no key of a label." in told
    actions = [
        json.loads(each)["action"] for each in log_path(out).read_text().splitlines()
    ]
    assert actions == ["label", "label", "export"]
    assert len(rows(out)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("body\na bird\n", "must have one column 'text'"),
        ("text\n", "must have rows"),
        ("", "must be a readable CSV file"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    new, out = tmp_path / "bad.csv", tmp_path / "reviewed.csv"
    new.write_text(content)
    assert message in refusal("review", trained_model(), "--data", new, "--out", out)
    assert not list(tmp_path.glob("reviewed*"))


def test_it_refuses_what_it_would_destroy(tmp_path: Path) -> None:
    new, out = new_texts(tmp_path), tmp_path / "mine.csv"
    out.write_text("text,label\nmine,cats\n")
    message = refusal("review", trained_model(), "--data", new, "--out", out)
    assert "must not exist yet" in message
    assert out.read_text() == "text,label\nmine,cats\n"


def test_a_review_of_another_model_is_refused(tmp_path: Path) -> None:
    out, new = tmp_path / "reviewed.csv", new_texts(tmp_path)
    run_cli("review", trained_model(), "--data", new, "--out", out, stdin=b"\nq\n")
    log = log_path(out)
    line = json.loads(log.read_text().splitlines()[0])
    log.write_text(log.read_text().replace(line["model"], "0" * 16))
    before = log.read_text()
    message = refusal("review", trained_model(), "--data", new, "--out", out)
    assert "must be a review log of this model" in message
    assert log.read_text() == before


@pytest.mark.slow
def test_single_keys_on_a_terminal_and_a_kill_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "reviewed.csv"
    master, slave = pty.openpty()
    program = spawn(
        *("review", model_copy(tmp_path), "--data", new_texts(tmp_path), "--out", out),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    try:
        shown = b""
        while b"q quits" not in shown:
            shown += os.read(master, 4096)
        os.write(master, b"12\ns\n")
        end = time.monotonic() + 60
        while time.monotonic() < end and (
            not log_path(out).exists() or log_path(out).read_text().count("\n") < 3
        ):
            time.sleep(0.05)
    finally:
        program.kill()
        program.wait()
        os.close(master)
        os.close(slave)
    actions = [
        json.loads(line)["action"] for line in log_path(out).read_text().splitlines()
    ]
    assert actions == ["label", "skip", "label"]
