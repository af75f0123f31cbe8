"""Each mistake: one line on stderr, exit 2, and nothing lost."""

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from toy import (
    TINY,
    model_copy,
    refusal,
    run_cli,
    spawn,
    toy_file,
    toy_rows,
    trained_model,
    write_csv,
)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return toy_file(tmp_path)


def listing(folder: str = ".") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def refused_training(*flags: object) -> str:
    message = refusal("train", *TINY, "--out", "m", *flags)
    assert not Path("m").exists()
    return message


TABLES = {
    "an empty file": (b"", "file in UTF-8; got an empty one. Name a file with texts."),
    "a header alone": (b"text,label\n", "must have rows; got none"),
    "no label column": (b"text,topic\na b,x\n", "one column 'label'; got text, topic"),
    "no text column": (b"body,label\na b,x\n", "one column 'text'; got body, label"),
    "two text columns": (b"text,text,label\na,b,x\n", "got 2 of them"),
    "an empty text": (b"text,label\na b,x\n,y\n", "an empty cell of 'text' in row 2"),
    "a blank text": (b"text,label\na b,x\n  ,y\n", "an empty cell of 'text' in row 2"),
    "an empty label": (b"text,label\na b,x\nc d,\n", "got '' in 'label', row 2"),
    "one class": (b"text,label\na b,x\nc d,x\n", "at least two labels"),
    "one row": (b"text,label\na b,x\n", "at least two labels"),
    "broken UTF-8": (b"text,label\na b,x\nc\xff d,y\n", "a byte 0xff in line 3"),
    "a row too long": (b"text,label\na b,x\nc,d,y\n", "3 cells instead of 2 in row 2"),
    "no quotation's end": (b'text,label\na b,x\n"c d,y\n', "never closed"),
}


@pytest.mark.parametrize(("content", "match"), TABLES.values(), ids=TABLES)
def test_bad_table_is_refused(source, content, match):
    Path("bad.csv").write_bytes(content)
    assert match in refused_training("--data", "bad.csv")
    assert Path("bad.csv").read_bytes() == content


NAN_LABELS = {
    "a null": '{"text": "a b", "label": "x"}\n{"text": "c d", "label": null}\n',
    "a NaN": '{"text": "a b", "label": 1.5}\n{"text": "c d", "label": NaN}\n',
    "no label": '{"text": "a b", "label": "x"}\n{"text": "c d"}\n',
    "no label in a list": '{"text": "a", "label": ["x"]}\n{"text": "c", "label": []}',
    "a null in a list": '{"text": "a", "label": ["x"]}\n{"text": "c", "label": [null]}',
}


@pytest.mark.parametrize("content", NAN_LABELS.values(), ids=NAN_LABELS)
def test_missing_label_is_refused(source, content):
    Path("bad.jsonl").write_text(content)
    message = refused_training("--data", "bad.jsonl")
    assert "must have a label in each row" in message
    assert "row 2" in message


OPTIONS = {
    "an unknown preset": (["--preset", "fast"], "preset must be one of paper"),
    "preset and config": (["--preset", "paper", "--config", "x.toml"], "Leave out one"),
    "a missing config": (["--config", "x.toml"], "x.toml must be a readable TOML"),
    "an unknown choice": (["--squash", "flat"], "squash must be one of"),
    "a number too low": (["--iterations", "0"], "iterations must be"),
    "n-grams of letters": (["--ngram-sizes", "3,x"], "ngram_sizes must be whole"),
    "impossible sizes": (
        ["--ngram-sizes", "3", "--max-tokens", "2"],
        "max_tokens must be at least 3",
    ),
    "a share of one": (["--dev-fraction", "1"], "dev_fraction must be"),
    "missing vectors": (["--vectors", "gone.bin"], "gone.bin must be"),
    "static, no vectors": (["--embeddings", "static"], "Name a file with --vectors"),
    "an unknown device": (["--device", "tpu"], "device must be auto, cpu, cuda"),
    "a GPU not there": (["--device", "cuda:99"], "device must be one this machine has"),
    "a missing dev file": (["--dev", "gone.csv"], "gone.csv must be a file"),
    "a rate of zero": (["--learning-rate", "0"], "learning_rate must be a finite"),
    "a rate not a number": (["--learning-rate", "nan"], "learning_rate must be a fini"),
    "a seed too large": (["--seed", "1" + "0" * 30], "seed must be a whole number of"),
    "a seed in floats": (["--seed", "1e30"], "Invalid value for '--seed'"),
    "endless epochs": (["--epochs", "1000000000000"], "epochs must be a whole number"),
    "an endless batch": (["--batch-size", "1000000000000"], "batch_size must be a who"),
    "too many filters": (["--filters", "1000000000000"], "filters must be a whole nu"),
    "no memory for them": (["--filters", "2000000000"], "bytes: --filters 2000000000"),
    "a missing test file": (["--test", "gone.csv"], "gone.csv must be a file"),
}


@pytest.mark.parametrize(("flags", "match"), OPTIONS.values(), ids=OPTIONS)
def test_bad_option_is_refused(source, flags, match):
    assert match in refused_training("--data", source, *flags)


def test_all_faults_are_told_at_once(source):
    message = refused_training("--data", source, "--epochs", 0, "--batch-size", 0)
    assert "epochs must be" in message and "batch_size must be" in message


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["train", "trec"], "textcapsules train"),
        (["data", "show"], "textcapsules data show"),
        (["frobnicate"], "textcapsules"),
    ],
)
def test_misuse_names_the_help_to_read(args, command):
    assert refusal(*args).endswith(f". See {command} --help.")


def test_missing_corpus_says_how_to_get_it(source):
    message = refused_training("--data", "mr", "--data-dir", "nowhere")
    assert "textcapsules data fetch mr" in message


def test_unknown_corpus_lists_what_there_is(source):
    assert "got 'movies'" in refused_training("--data", "movies")


def test_unsupported_ending_is_told(source):
    Path("texts.xlsx").write_bytes(b"PK")
    assert "texts.xlsx must end in .csv" in refused_training("--data", "texts.xlsx")


def test_missing_file_is_told(source):
    assert "gone.csv must be a file" in refused_training("--data", "gone.csv")


def test_folder_in_place_of_a_file_is_told(source):
    Path("folder.csv").mkdir()
    told = refused_training("--data", "folder.csv")
    assert "folder.csv must be a file; got a folder. Name a file in it." in told


def test_out_that_is_a_file_is_refused(source):
    message = refusal("train", "--data", source, *TINY, "--out", source)
    assert message.endswith("toy.csv must be a folder; got a file.")
    assert source.read_text().startswith("text,label")


def test_out_below_a_file_is_refused(source):
    message = refusal("train", "--data", source, *TINY, "--out", source / "m")
    assert "must be writable; got Not a directory" in message


@pytest.mark.parametrize("place", ["m" * 300, "m/" + "m" * 300, "m" * 300 + "/m"])
def test_name_too_long_is_told(source, place):
    message = refusal("train", "--data", source, *TINY, "--out", place)
    assert message == (
        f"{place} must be writable; got File name too long. Give it a shorter name; "
        "nothing was replaced."
    )
    for verb in (["predict", place, "text"], ["evaluate", place]):
        assert "must be a model folder; got no such folder" in refusal(*verb)
    assert listing() == ["toy.csv"]


@pytest.mark.slow
def test_other_verbs_tell_a_name_too_long(source):
    page = f"{'p' * 300}.html"
    model = trained_model()
    for verb in (
        ["explain", model, "my cat", "--out", page],
        ["evaluate", model, "--data", source, "--out", page],
        ["predict", model, "--data", source, "--out", f"{'p' * 300}.csv"],
    ):
        message = refusal(*verb)
        assert "got File name too long. Give it a shorter name" in message


def test_dev_label_never_seen_is_told(source):
    write_csv(Path("dev.csv"), [("my cow", "cows")])
    message = refused_training("--data", source, "--dev", "dev.csv")
    assert "got 'cows' in row 1 of dev.csv" in message


def test_one_row_with_two_labels_cannot_be_held_out(source):
    write_csv(Path("one.csv"), [("my cat", "x|y")])
    message = refused_training("--data", "one.csv", "--separator", "|")
    assert "at least 2 texts to hold one out" in message


# Prediction.


PREDICTIONS = {
    "no input": ([], "got none. Give a text in quotes."),
    "two inputs": (["text", "--data", "toy.csv"], "got both."),
    "out without a file": (["text", "--out", "out.csv"], "out must go with --data"),
    "a threshold too high": (["text", "--threshold", "1.1"], "from 0 to 1; got 1.1"),
    "a threshold below 0": (["text", "--threshold", "-0.1"], "from 0 to 1; got -0.1"),
    "a threshold for one": (
        ["text", "--threshold", "0.5", "--single-label"],
        "threshold must go with all labels",
    ),
    "a missing file": (["--data", "gone.csv"], "gone.csv must be a file"),
    "a missing column": (
        ["--data", "toy.csv", "--text-column", "body"],
        "one column 'body'; got text, label",
    ),
    "an unknown ending": (["--data", "toy.docx"], "toy.docx must end in .csv"),
    "an out of no form": (
        ["--data", "toy.csv", "--out", "out.docx"],
        "out.docx must end in .csv",
    ),
    "out among the missing": (
        ["--data", "toy.csv", "--out", "toy.csv/out.csv"],
        "toy.csv/out.csv must be writable; got",
    ),
    "a GPU not there": (["text", "--device", "cuda:99"], "one this machine has"),
}


@pytest.mark.parametrize(("args", "match"), PREDICTIONS.values(), ids=PREDICTIONS)
def test_bad_prediction_is_refused(source, args, match):
    before = listing()
    assert match in refusal("predict", trained_model(), *args)
    assert listing() == before


@pytest.mark.parametrize("content", [b"", b"text,label\n"])
def test_empty_file_to_predict_is_refused(source, content):
    Path("empty.csv").write_bytes(content)
    args = ["--data", "empty.csv", "--out", "out.csv"]
    assert "empty.csv must" in refusal("predict", trained_model(), *args)
    assert not Path("out.csv").exists()


def test_broken_utf8_in_a_file_leaves_no_output(source):
    rows = b"".join(b"my cat purr %d\n" % number for number in range(9000))
    Path("bad.csv").write_bytes(b"text\n" + rows + b"caf\xe9\n")
    args = ["--data", "bad.csv", "--out", "out.csv"]
    message = refusal("predict", trained_model(), *args)
    assert "a byte 0xe9 in line 9002" in message
    assert listing() == ["bad.csv", "toy.csv"]


def test_broken_utf8_on_stdin_is_told_with_its_line():
    message = refusal("predict", trained_model(), "-", stdin=b"my cat\ncaf\xe9\n")
    assert message == "stdin must be UTF-8; got byte 0xe9 in line 2."


@pytest.mark.slow
def test_broken_utf8_in_an_argument_is_told():
    process = spawn("predict", trained_model(), os.fsdecode(b"caf\xe9"))
    _, err = process.communicate()
    assert process.returncode == 2
    assert err.decode() == (
        "textcapsules: text must be UTF-8; got 'caf\\udce9' as text 1.\n"
    )


# Model folders.


@pytest.mark.parametrize("verb", [("predict", "text"), ("evaluate",)])
def test_folder_that_is_no_model_is_told(tmp_path, verb):
    message = refusal(verb[0], tmp_path, *verb[1:])
    assert "must be a model folder; got one without config.json" in message
    message = refusal(verb[0], tmp_path / "no", *verb[1:])
    assert "must be a model folder; got no such folder" in message


def test_damaged_model_is_told_with_its_file(tmp_path):
    folder = model_copy(tmp_path)
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])
    assert "model.safetensors must hold the weights" in refusal(
        "predict", folder, "text"
    )


def test_newer_model_asks_for_an_update(tmp_path):
    folder = model_copy(tmp_path)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "format": 99}))
    assert refusal("predict", folder, "text").endswith("Update textcapsules.")


# A full disk.


def full_disk(name: str):
    """Let every file of that name meet a full disk when its bytes are flushed."""
    flush = os.fsync

    def fsync(number: int) -> None:
        if name in str(Path(f"/proc/self/fd/{number}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(number)

    return mock.patch("os.fsync", fsync)


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")


@needs_proc
def test_full_disk_keeps_the_earlier_prediction(source):
    Path("out.csv").write_text("mine")
    args = ["--data", source, "--out", "out.csv", "--overwrite"]
    with full_disk("out.csv"):
        message = refusal("predict", trained_model(), *args)
    assert message.startswith("out.csv must be writable; got No space left on device.")
    assert Path("out.csv").read_text() == "mine"
    assert listing() == ["out.csv", "toy.csv"]


@needs_proc
@pytest.mark.parametrize("name", ["checkpoint.safetensors", "model.safetensors"])
def test_run_on_a_full_disk_is_resumed_when_there_is_room(source, name):
    flags = ["train", "--data", source, *TINY, "--epochs", 2, "--out"]
    assert run_cli(*flags, "whole").code == 0
    with full_disk(name):
        message = refusal(*flags, "cut", "--json")
    assert f"cut/{name} must be writable; got No space left on device" in message
    assert run_cli("train", "--resume", "cut").code == 0
    one, other = (Path(run, "model.safetensors") for run in ("whole", "cut"))
    assert one.read_bytes() == other.read_bytes()
    assert listing("cut") == listing("whole")


@pytest.fixture
def tiny_disk(tmp_path):
    """Mount 64 KiB of memory as a disk, where this may be done."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if (
        shutil.which("mount") is None
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("no right to mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_real_full_disk_is_one_line_for_each_verb(source, tiny_disk):
    big = [(text * 40, label) for text, label in toy_rows(60)]
    path = write_csv(Path("big.csv"), big)
    predict = ["predict", trained_model(), "--data", path, "--out", tiny_disk / "o.csv"]
    assert "No space left on device" in refusal(*predict)
    assert list(tiny_disk.iterdir()) == []
    wide = [*TINY, "--embedding-size", 600, "--json"]  # weights of more than 64 KiB
    train = ["train", "--data", source, *wide, "--out", tiny_disk / "m"]
    message = refusal(*train)
    assert "checkpoint.safetensors must be writable" in message
    assert "No space left on device" in message
    data = ["evaluate", trained_model(), "--data", path, "--out", tiny_disk / "e"]
    (tiny_disk / "filler").write_bytes(bytes(30_000))
    assert "No space left on device" in refusal(*data)
