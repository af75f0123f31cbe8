import json
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib import metadata
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement

from textcapsules import __version__
from textcapsules.cli.app import VERBS as SUMMARIES
from textcapsules.cli.app import app
from textcapsules.config import PRESETS, SECTIONS, preset
from toy import refusal, run_cli

VERBS = [
    ("demo",),
    ("train",),
    ("compare",),
    ("suspects",),
    ("evaluate",),
    ("predict",),
    ("explain",),
    ("review",),
    ("calibrate",),
    ("report",),
    ("serve",),
    ("export",),
    ("bench",),
    ("reproduce",),
    ("data", "list"),
    ("data", "show"),
    ("data", "fetch"),
]


def test_every_verb_is_in_the_table():
    assert {verb for verb, *_ in VERBS} == set(SUMMARIES)


@pytest.mark.parametrize("verb", SUMMARIES)
def test_summary_in_the_list_of_verbs_is_the_first_line_of_the_verbs_help(verb):
    command = typer.main.get_group(app).commands[verb].load()  # type: ignore[attr-defined]
    assert command.help.splitlines()[0] == SUMMARIES[verb]


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


# Options of `train` that are not in the configuration.
TRAIN_ALONE = """
    --out --preset --config --resume --overwrite --tensorboard --keep-checkpoint
    --print-config --json --help-all --help
""".split()  # noqa: SIM905 (a page to read, not a list)


def shown_options(*args: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the help of each option, by its flag, from a help of long lines."""
    monkeypatch.setenv("COLUMNS", "2000")
    ran = run_cli(*args)
    assert (ran.code, ran.err) == (0, "")
    rows = [" ".join(line.strip("│ ").split()) for line in ran.out.splitlines()]
    return {row.split()[0]: row for row in rows if row.startswith("--")}


def config_options(*, common_only: bool) -> list[str]:
    """Return the flags of the configuration, in the order of its sections."""
    names = [
        "data" if field.name == "source" else field.name
        for section in SECTIONS.values()
        for field in fields(section)
        if field.metadata["common"] or not common_only
    ]
    return ["--" + name.replace("_", "-") for name in names]


def test_train_help_lists_the_common_options_alone(monkeypatch):
    shown = shown_options("train", "--help", monkeypatch=monkeypatch)
    assert list(shown) == TRAIN_ALONE + config_options(common_only=True)
    assert "--learning-rate" in shown and "--ngram-sizes" not in shown


def test_train_help_all_lists_every_option_by_section(monkeypatch):
    shown = shown_options("train", "--help-all", monkeypatch=monkeypatch)
    assert list(shown) == TRAIN_ALONE + config_options(common_only=False)
    assert "--no-leaky" in shown["--leaky"]
    out = run_cli("train", "--help-all").out
    titles = re.findall("^╭─ (.*?) ─", out, re.MULTILINE)
    assert titles == ["Options", *(f"{name.capitalize()} options" for name in SECTIONS)]


@pytest.mark.parametrize("name", [None, *PRESETS])
def test_defaults_in_the_help_are_those_that_run(name, monkeypatch):
    named = ["train"] if name is None else ["train", "--preset", name]
    shown = shown_options(*named, "--help-all", monkeypatch=monkeypatch)
    typed, n_none = [], 0
    for flag in config_options(common_only=False):
        (default,) = re.findall(r"default: (.*)\]$", shown[flag])
        if default in ("on", "off"):
            typed += [flag if default == "on" else f"--no-{flag[2:]}"]
        elif default == "none" and "choices: " not in shown[flag]:
            n_none += 1
        else:
            typed += [flag, default]
    # On top of each other preset, so that a default not shown would be seen.
    expected = json.loads(json.dumps(preset(name or "best").to_dict()))
    for other in PRESETS:
        ran = run_cli("train", "--preset", other, *typed, "--print-config", "--json")
        values = json.loads(ran.out)
        if expected["train"]["epochs"] is None:  # what no flag can say
            values["train"]["epochs"] = None
        assert values == {**expected, "preset": other}
    values = [value for section in SECTIONS for value in expected[section].values()]
    # Without a preset the texts decide about an encoder; here they take none.
    assert n_none == values.count(None) - (name is None)
    short = shown_options(*named, "--help", monkeypatch=monkeypatch)
    assert all(short[flag] == shown[flag] for flag in short)


def test_defaults_of_a_model_are_not_shown_as_numbers(monkeypatch):
    for verb in ("evaluate", "report"):
        shown = shown_options(verb, "--help", monkeypatch=monkeypatch)
        assert "default" not in shown["--text-column"]
        assert "by default the model's own" in run_cli(verb, "--help").out


def test_all_options_stay_usable():
    ran = run_cli("train", "--word-dropout", 0.25, "--print-config", "--json")
    assert json.loads(ran.out)["model"]["word_dropout"] == 0.25


def modules_of(*args: str) -> set[str]:
    """Return the top-level modules that a command imports."""
    code = (
        "import sys; before = {*sys.modules}; from textcapsules.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*{name.partition('.')[0] for name in {*sys.modules} - before})"
    )
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_no_verb():
    code = (
        "import sys; from textcapsules.cli import main; sys.argv[1:] = ['--help']\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "textcapsules.cli.app" in loaded
    assert not loaded & {f"textcapsules.cli.{verb}" for verb in SUMMARIES}
    assert not loaded & {"torch", "numpy", "pydantic", "textcapsules.config"}


@pytest.mark.parametrize(
    "flags", [["--help"], ["--help-all"], ["--preset", "best", "--print-config"]]
)
def test_train_answers_without_torch(flags):
    modules = modules_of("train", *flags)
    assert "textcapsules" in modules
    assert not modules & {"torch", "sklearn", "matplotlib", "pyarrow"}


def test_print_config_needs_no_extra():
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    waiting, needed = [*project["dependencies"]], {"textcapsules"}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = requirement.name.lower().replace("_", "-")
        is_here = requirement.marker is None or requirement.marker.evaluate(
            {"extra": ""}
        )
        if is_here and name not in needed:
            needed.add(name)
            waiting += metadata.requires(name) or []
    owners = metadata.packages_distributions()
    modules = modules_of("train", "--print-config")
    assert "tomli_w" in modules
    for module in modules & set(owners):
        names = {name.lower().replace("_", "-") for name in owners[module]}
        assert names & needed, f"{module} is in no dependency of a plain installation"


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
