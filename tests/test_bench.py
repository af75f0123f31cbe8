"""The benchmarks on tiny sizes: every way is timed, and the record is whole."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from textcapsules import bench
from textcapsules.bench import Case, Ceilings, Layer
from textcapsules.cli import app
from textcapsules.errors import ConfigError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "LAYERS", {"tiny": Layer(2, 5, 2, 3, 3)})
    monkeypatch.setattr(bench, "CASES", {"mr": Case(3, 8, 2)})
    monkeypatch.setattr(bench, "N_WORDS", 30)
    monkeypatch.setattr(bench, "measure_ceilings", lambda device: Ceilings(1e9, 1e9))
    honest = bench.call_times
    monkeypatch.setattr(
        bench, "call_times", lambda function, device: honest(function, device, 0.0)
    )


def test_routing_is_timed_every_way() -> None:
    rows = list(bench.bench_routing(CPU))
    assert [row["way"] for row in rows] == ["votes", "vote-free", "cpu"]
    for row in rows:
        assert 0 < row["low_ms"] <= row["ms"] <= row["high_ms"]
        assert row["share"] == pytest.approx(row["floor_ms"] / row["ms"], abs=1e-3)


def test_floor_counts_bytes_and_products_by_hand() -> None:
    # 2 texts, 3 windows of 3 * 2 children, 3 parents, poses of 4, 1 iteration.
    layer = Layer(2, 5, 2, 3, 3)
    products = 2 * (2 * 3 * 6) * 3 * 4 * 6
    moved = 4 * 4 * 2 * (2 * 5 * 2 + 2 * 3 * 3)
    slow_products = bench.routing_floor(layer, 4, 1, Ceilings(1e9, 1.0))
    slow_memory = bench.routing_floor(layer, 4, 1, Ceilings(1.0, 1e9))
    assert slow_products == products
    assert slow_memory == moved


def test_training_and_prediction_are_timed() -> None:
    rows = list(bench.bench_train(CPU, cases=("mr",)))
    assert [row["way"] for row in rows] == ["votes", "vote-free", "auto"]
    (plain, ours) = bench.bench_predict(CPU, n_texts=8, mean_tokens=5)
    assert plain["way"] == "vote-free"
    assert ours["texts_per_second"] == pytest.approx(8e3 / ours["ms"], abs=1)


def test_bench_writes_its_record(tmp_path: Path) -> None:
    command = ["bench", "routing", "--device", "cpu", "--no-votes", "--json"]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "r.json")])
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "r.json").read_text())
    assert json.loads(done.stdout.splitlines()[-1]) == record
    assert {"device", "threads", "torch", "rows"} <= set(record)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "sleep"], "what must be one of .*; got 'sleep'"),
        (["bench", "train", "--case", "imdb"], "case must be one of .*; got 'imdb'"),
    ],
)
def test_bad_benchmarks_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
