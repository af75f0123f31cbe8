import json

import pytest

from textcapsules import __version__
from textcapsules.config import SECTIONS
from toy import refusal, run_cli

VERBS = [
    ("demo",),
    ("train",),
    ("evaluate",),
    ("predict",),
    ("data", "list"),
    ("data", "show"),
    ("data", "fetch"),
]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_shows_an_example_on_a_line_of_its_own(verb):
    ran = run_cli(*verb, "--help")
    assert (ran.code, ran.err) == (0, "")
    lines = [line.strip() for line in ran.out.splitlines()]
    command = " ".join(["textcapsules", *verb])
    examples = [line for line in lines if line.startswith(command)]
    assert examples  # one that was wrapped would not be followed by an empty line
    assert all(lines[lines.index(line) + 1] == "" for line in examples)
    assert max(map(len, ran.out.splitlines())) <= 80


def test_train_help_names_its_panels():
    out = run_cli("train", "--help").out
    titles = [line.split("─ ")[1] for line in out.splitlines() if line.startswith("╭")]
    assert len(titles) == 1 + len(SECTIONS)
    assert all(title.strip() for title in titles), titles
    for flag in ("--dev-fraction", "--ngram-sizes", "--clip-norm", "--no-leaky"):
        assert flag in out


def test_short_help_flag_works():
    assert run_cli("predict", "-h") == run_cli("predict", "--help")


@pytest.mark.parametrize("verb", [(), ("data",)])
def test_no_verb_shows_the_help(verb):
    ran = run_cli(*verb)
    assert ran.code == 2
    assert "Usage: textcapsules" in ran.out
    assert ran.err == ""


def test_version_is_printed():
    assert run_cli("--version").out.strip() == __version__


def test_unknown_verb_is_told():
    assert "'nonsense'" in refusal("nonsense")


def test_unknown_flag_is_told():
    assert "--epoch-count" in refusal("train", "--epoch-count", "3")


def test_value_of_the_wrong_kind_is_told():
    assert "'--epochs'" in refusal("train", "--epochs", "many")


def test_print_config_is_read_back(tmp_path):
    flags = ["--iterations", "5", "--ngram-sizes", "2,7"]
    ran = run_cli("train", "--print-config", *flags)
    assert ran.code == 0
    (tmp_path / "run.toml").write_text(ran.out)
    again = run_cli("train", "--print-config", "--config", tmp_path / "run.toml")
    assert again.out == ran.out
    assert "iterations = 5" in ran.out


def test_print_config_as_json():
    ran = run_cli("train", "--print-config", "--json", "--no-leaky")
    values = json.loads(ran.out.splitlines()[-1])
    assert values["model"]["leaky"] is False
