import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from textcapsules.model.classifier import TextClassifier
from toy import (
    OFF_TOPIC,
    TINY,
    TOPICAL,
    TOPICS,
    refusal,
    refusing_model,
    run_cli,
    spawn,
    toy_rows,
    trained_model,
    write_csv,
)


@pytest.fixture
def texts(tmp_path):
    return write_csv(tmp_path / "new.csv", toy_rows(7, seed=6))


def lines(ran):
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def test_texts_are_answered_one_a_line():
    ran = run_cli("predict", trained_model(), "my cat purr kitten", "", "zzz qqq")
    assert lines(ran) == [
        {"text": "my cat purr kitten", "predicted": ["cats"], "outside": False},
        {"text": "", "predicted": [], "outside": False},
        {"text": "zzz qqq", "predicted": [], "outside": False},
    ]


def test_texts_need_no_more_than_torch():
    code = (
        "import sys; from textcapsules.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    command = [sys.executable, "-c", code, "predict", trained_model(), "a dog bark"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer, modules = done.stdout.splitlines()
    assert json.loads(answer)["predicted"] == ["dogs"]
    loaded = set(modules.split())
    assert "torch" in loaded
    assert not loaded & {"numba", "pandas", "pyarrow", "scipy", "sklearn", "matplotlib"}
    assert not loaded & {"jinja2", "transformers", "fastapi"}


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_imports_are_not_searched_for_garbage(verb):
    code = (
        "import gc, sys; from textcapsules.cli import main\n"
        "runs = []\n"
        "gc.callbacks.append(lambda _, facts: runs.append(facts['generation']))\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "sys.stderr.write(str(runs.count(2)))"  # those that go through all objects
    )
    command = [sys.executable, "-c", code, verb, trained_model(), "a dog bark"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "0"


def test_json_is_one_object_with_the_predictions():
    ran = run_cli("predict", trained_model(), "a dog bark, zzz", "", "--json")
    assert lines(ran) == [
        {
            "model": str(trained_model()),
            "predictions": [
                {
                    "text": "a dog bark, zzz",
                    "predicted": ["dogs"],
                    "outside": False,
                    "words_known": 3,
                    "words_read": 5,
                },
                {
                    "text": "",
                    "predicted": [],
                    "outside": False,
                    "words_known": 0,
                    "words_read": 0,
                },
            ],
            "texts": 2,
            "without_label": 1,
            "unreadable": 1,
            "outside": 0,
            "cut": {
                "max_tokens": 200,
                "texts": 0,
                "share_dropped": 0.0,
                "longest": 5,
            },
        }
    ]


def test_scores_name_every_class():
    (row,) = lines(run_cli("predict", trained_model(), "a dog bark", "--scores"))
    expected = TextClassifier.load(trained_model()).scores(["a dog bark"])[0]
    assert list(row)[3:-2] == [f"score_{name}" for name in TOPICS]
    assert list(row.values())[3:-2] == pytest.approx(expected.tolist())


def test_scores_come_with_how_many_words_are_known():
    given = b"a dog bark at zzz\nzzz\n\n"
    found = lines(run_cli("predict", trained_model(), "-", "--scores", stdin=given))
    counts = [(row["words_known"], row["words_read"]) for row in found]
    assert counts == [(3, 5), (0, 1), (0, 0)]
    plain = lines(run_cli("predict", trained_model(), "-", stdin=given))
    assert [list(row) for row in plain] == [["text", "predicted", "outside"]] * 3


def test_columns_of_a_file_do_not_depend_on_json(texts):
    args = ["predict", trained_model(), "--data", texts]
    assert lines(run_cli(*args, "--json"))[:-1] == lines(run_cli(*args))


def test_threshold_and_kind_decide():
    args = ["predict", trained_model(), "a dog bark"]
    assert lines(run_cli(*args, "--threshold", 1))[0]["predicted"] == []
    every = lines(run_cli(*args, "--threshold", 0))[0]["predicted"]
    assert every[0] == "dogs" and set(every) == set(TOPICS)
    calibrated = lines(run_cli(*args, "--multi-label"))[0]["predicted"]
    classifier = TextClassifier.load(trained_model())
    expected = classifier.predict(["a dog bark"], multi_label=True)[0].labels
    assert tuple(calibrated) == expected
    assert lines(run_cli(*args, "--single-label"))[0]["predicted"] == ["dogs"]


def test_stdin_is_read_a_text_a_line():
    given = "\ufeffmy cat purr\r\na dog bark\n\n日本 bird sing".encode()
    found = lines(run_cli("predict", trained_model(), "-", stdin=given))
    assert [row["text"] for row in found] == [
        "my cat purr",
        "a dog bark",
        "",
        "日本 bird sing",
    ]
    assert [row["predicted"] for row in found] == [["cats"], ["dogs"], [], ["birds"]]


def test_stdin_json_ends_with_the_summary():
    found = lines(run_cli("predict", trained_model(), "-", "--json", stdin=b"cat\n\n"))
    assert len(found) == 3
    assert (found[-1]["texts"], found[-1]["unreadable"]) == (2, 1)


def test_empty_stdin_is_no_text():
    (summary,) = lines(run_cli("predict", trained_model(), "-", "--json", stdin=b""))
    assert summary["texts"] == 0


def test_file_is_labelled_into_another(texts, tmp_path):
    target = tmp_path / "out.csv"
    ran = run_cli("predict", trained_model(), "--data", texts, "--out", target)
    assert ran.code == 0
    assert ran.out.startswith(f"{target}: 7 texts, 0 without a label")
    with target.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["text"], row["label"]) for row in found] == toy_rows(7, seed=6)
    assert [row["predicted"] for row in found] == [row["label"] for row in found]


def test_file_json_tells_where_it_went(texts, tmp_path):
    args = ["predict", trained_model(), "--data", texts, "--json"]
    ran = run_cli(*args, "--out", tmp_path / "out.parquet")
    values = json.loads(ran.out.splitlines()[-1])
    assert (values["out"], values["texts"]) == (str(tmp_path / "out.parquet"), 7)
    printed = lines(run_cli(*args))
    assert len(printed) == 8
    assert printed[-1]["texts"] == 7
    assert "predictions" not in printed[-1]


def test_former_name_of_data_is_understood(texts):
    args = ["predict", trained_model()]
    assert run_cli(*args, "--file", texts) == run_cli(*args, "--data", texts)
    assert run_cli(*args, f"--file={texts}") == run_cli(*args, "--data", texts)
    assert "--file" not in run_cli("predict", "--help").out


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_text_column_is_the_one_of_training(tmp_path, verb):
    rows = toy_rows(24)
    source = write_csv(tmp_path / "toy.csv", rows, ("body", "label"))
    flags = ["--data", source, "--text-column", "body", *TINY, "--epochs", 1]
    assert run_cli("train", *flags, "--out", tmp_path / "m").code == 0
    ran = run_cli(verb, tmp_path / "m", "--data", source, "--json")
    assert ran.code == 0
    assert all(text in ran.out for text, _ in rows)
    other = write_csv(tmp_path / "other.csv", [["cat"]], header=["text"])
    assert "one column 'body'; got text" in refusal(
        verb, tmp_path / "m", "--data", other
    )
    args = [verb, tmp_path / "m", "--data", other, "--text-column", "text"]
    assert run_cli(*args).code == 0
    message = refusal(verb, trained_model(), "my cat", "--text-column", "body")
    assert message.startswith("text-column must go with --data")


def test_existing_out_is_kept_unless_overwrite(texts, tmp_path):
    target = tmp_path / "out.csv"
    target.write_text("mine")
    args = ["predict", trained_model(), "--data", texts, "--out", target]
    assert "must not exist yet" in refusal(*args)
    assert target.read_text() == "mine"
    assert run_cli(*args, "--overwrite").code == 0


@pytest.mark.slow
def test_output_into_a_closed_pipe_ends_quietly(tmp_path):
    given = tmp_path / "lines.txt"
    given.write_text("my cat purr\n" * 5000)
    with given.open("rb") as stdin:
        process = spawn("predict", trained_model(), "-", stdin=stdin)
        assert process.stdout and process.stderr
        assert b"cats" in process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.stderr.close()
        process.wait()
    assert err == b""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_onto_a_full_disk_is_told():
    with Path("/dev/full").open("wb") as full:
        process = spawn("predict", trained_model(), "my cat", stdout=full)
        _, err = process.communicate()
    assert process.returncode == 2
    assert err.decode() == (
        "textcapsules: output must be writable; got No space left on device. "
        "Free some space.\n"
    )


@pytest.mark.slow
def test_any_script_is_printed_in_any_locale():
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    process = spawn("predict", trained_model(), "-", env=locale, stdin=subprocess.PIPE)
    out, err = process.communicate("日本 cat".encode())
    assert process.returncode == 0, err
    assert json.loads(out)["text"] == "日本 cat"


def test_text_outside_gets_no_label_unless_asked_for(tmp_path):
    args = ["predict", refusing_model(), TOPICAL, OFF_TOPIC, "--json"]
    (found,) = lines(run_cli(*args))
    assert [row["outside"] for row in found["predictions"]] == [False, True]
    assert [len(row["predicted"]) for row in found["predictions"]] == [1, 0]
    assert (found["outside"], found["without_label"]) == (1, 1)
    (found,) = lines(run_cli(*args, "--no-refuse"))
    assert [row["outside"] for row in found["predictions"]] == [False, True]
    assert [len(row["predicted"]) for row in found["predictions"]] == [1, 1]
    source = write_csv(tmp_path / "in.csv", [(TOPICAL,), (OFF_TOPIC,)], ["text"])
    ran = run_cli(
        "predict", refusing_model(), "--data", source, "--out", tmp_path / "out.csv"
    )
    assert "1 outside the training topics" in ran.out
    content = (tmp_path / "out.csv").read_text().splitlines()
    assert content[0].replace('"', "") == "text,predicted,outside"
    assert [line.split(",")[-1] for line in content[1:]] == ["false", "true"]
