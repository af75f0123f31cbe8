"""Any file of a model or a run, damaged in any way: the same result, or one line."""

import json
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.damage import DAMAGE, Damage, only_line
from textcapsules.model.classifier import MODEL_FILES, TextClassifier
from textcapsules.training.run import train
from toy import model_copy, run_cli, tiny_config, toy_file, trained_model

pytestmark = pytest.mark.slow

RUN_FILES = (*MODEL_FILES[:3], "training.json", "checkpoint.safetensors")
TEXTS = ["my cat purr", "the dog bark", "a bird sing and a dog bark"]
# Chance decides where these meet a file: several times each.
DRAWN = {"cut": 3, "one bit": 8, "one digit": 8}


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError("the command hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class BrokenError(Exception):
    """Ends a run."""


def interrupted(folder: Path, source: Path, seed: int) -> Path:
    """Return the folder of a run broken off after its second epoch of three."""

    def stop(record: dict[str, object]) -> None:
        if record["epoch"] == 3:
            raise BrokenError

    config = tiny_config(source, train={"epochs": 3, "seed": seed})
    with pytest.raises(BrokenError):
        train(config, folder, on_epoch=stop)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, bytes]:
    """Return a broken-off run, another of the same shapes, and the whole's weights."""
    base = tmp_path_factory.mktemp("runs")
    source = toy_file(base)  # enough for training to warn of nothing
    one, other = (interrupted(base / f"run{seed}", source, seed) for seed in (0, 1))
    train(tiny_config(source, train={"epochs": 3}), base / "whole")
    return one, other, (base / "whole" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that differs from the trained one in its weights alone."""
    base = tmp_path_factory.mktemp("other")
    train(tiny_config(toy_file(base), train={"epochs": 1, "seed": 1}), base / "model")
    changed = TextClassifier.load(base / "model")
    names = changed.labels.names
    changed.labels = changed.labels._replace(names=(*names[1:], names[0]))
    changed.save(base / "model")
    return base / "model"


def predicted(folder: Path) -> str | None:
    """Return the scores and labels that `predict` gives, or None where it refuses."""
    ran = run_cli("predict", folder, *TEXTS, "--scores", "--device", "cpu")
    assert "Traceback" not in ran.err
    if ran.code == 0:
        return ran.out
    assert only_line(ran.code, ran.err), ran
    assert ran.out == ""
    return None


@pytest.mark.parametrize("way", DAMAGE)
@pytest.mark.parametrize("name", MODEL_FILES)
def test_damaged_model_predicts_the_same_or_says_why_not(
    tmp_path: Path, other_model: Path, name: str, way: str
) -> None:
    expected = predicted(trained_model())
    damage, draw = DAMAGE[way], random.Random(f"{name} {way}")
    for _ in range(DRAWN.get(way, 1)):
        folder = model_copy(tmp_path)
        damage(folder / name, draw, other_model / name)
        intact = same_file(folder / name, trained_model() / name)
        found = predicted(folder)
        assert found == expected if intact else found in (expected, None)
        if way not in DRAWN and name != "tokenizer.json":
            assert found is None or intact  # the way of damage is no harmless one
        shutil.rmtree(folder)


def same_file(one: Path, other: Path) -> bool:
    same_size = one.is_file() and one.stat().st_size == other.stat().st_size
    return same_size and one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("way", DAMAGE)
@pytest.mark.parametrize("name", RUN_FILES)
def test_damaged_run_ends_with_the_same_weights_or_says_why_not(
    tmp_path: Path, runs: tuple[Path, Path, bytes], name: str, way: str
) -> None:
    run, other, weights = runs
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    damage: Damage = DAMAGE[way]
    damage(folder / name, random.Random(f"{name} {way}"), other / name)
    ran = run_cli("train", "--resume", folder, "--json")
    if ran.code == 0:
        assert (folder / "model.safetensors").read_bytes() == weights
        record = json.loads(ran.out.splitlines()[-1])
        assert record["finished"]
        TextClassifier.load(folder)
    else:
        assert only_line(ran.code, ran.err), ran
        assert ran.out == ""


def test_checkpoint_without_its_best_epoch_is_one_line(
    tmp_path: Path, runs: tuple[Path, Path, bytes]
) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder)
    path = folder / "checkpoint.safetensors"
    with safe_open(path, "pt") as file:
        state = json.loads(file.metadata()["state"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    whole = {key: value for key, value in state.items() if key != "best_epoch"}
    for spoilt in (whole, {**state, "best_epoch": 9}, {**state, "records": [{}]}, []):
        save_file(tensors, path, {"state": json.dumps(spoilt)})
        ran = run_cli("train", "--resume", folder)
        assert only_line(ran.code, ran.err), ran
        assert "checkpoint.safetensors must be a checkpoint of this run" in ran.err


@pytest.mark.parametrize("way", ["a folder", "a pipe", "a device", "endless", "deep"])
@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_config_that_is_no_file_of_options_is_one_line(
    tmp_path: Path, way: str, suffix: str
) -> None:
    path = tmp_path / f"options{suffix}"
    path.touch()
    DAMAGE[way](path, random.Random(0), path)
    ran = run_cli("train", "--config", path, "--out", tmp_path / "m")
    assert only_line(ran.code, ran.err), ran
    assert f"options{suffix} must " in ran.err


@pytest.mark.parametrize("way", ["a folder", "a pipe", "a device"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_table_that_is_no_file_is_one_line(
    tmp_path: Path, way: str, suffix: str
) -> None:
    path = tmp_path / f"texts{suffix}"
    path.touch()
    DAMAGE[way](path, random.Random(0), path)
    for verb in (
        ("predict", trained_model(), "--file", path, "--out", tmp_path / "out.csv"),
        ("train", "--data", path, "--out", tmp_path / "m"),
        ("evaluate", trained_model(), "--data", path),
    ):
        ran = run_cli(*verb)
        assert only_line(ran.code, ran.err), ran
        assert f"texts{suffix} must be" in ran.err
