"""The benchmarks on tiny sizes: every way is timed, and the record is whole."""

import functools
import itertools
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from textcapsules.base.errors import ConfigError
from textcapsules.cli import app
from textcapsules.config import preset
from textcapsules.lab import bench
from textcapsules.lab.bench import cases, many, measure, speed
from textcapsules.lab.bench.cases import (
    BenchCase,
    BenchLayer,
    network_floor,
    routing_floor,
)
from textcapsules.lab.bench.measure import MachineRates

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "BENCH_LAYERS", {"tiny": BenchLayer(2, 5, 2, 3, 3)})
    for module in (bench, speed):
        monkeypatch.setattr(module, "BENCH_CASES", {"mr": BenchCase(3, 8, 2)})
    lengths = [BenchCase(2, 8, 2), BenchCase(2, 16, 2)]
    monkeypatch.setattr(speed, "SMALL", {"length": lengths})
    monkeypatch.setattr(speed, "THREADS_CASE", BenchCase(2, 8, 2))
    monkeypatch.setattr(speed.os, "cpu_count", lambda: 2)
    for module in (cases, speed):
        monkeypatch.setattr(module, "N_WORDS", 30)
    monkeypatch.setattr(speed, "measure_rates", lambda device: MachineRates(1e9, 1e9))
    few_calls = functools.partial(measure.call_times, budget=0.0)
    monkeypatch.setattr(measure, "call_times", few_calls)


def test_routing_is_timed_every_way() -> None:
    rows = list(bench.bench_routing(CPU))
    ways = ["votes", "vote-free", "cpu", "cpu, normalised"]
    assert [row["way"] for row in rows] == ways
    for row in rows:
        assert 0 < row["low_ms"] <= row["ms"] <= row["high_ms"]
        assert row["share"] == pytest.approx(row["floor_ms"] / row["ms"], abs=1e-3)


def test_floor_counts_bytes_and_products_by_hand() -> None:
    # 2 texts, 3 windows of 3 * 2 children, 3 parents, poses of 4, 1 iteration.
    layer = BenchLayer(2, 5, 2, 3, 3)
    products = 2 * (2 * 3 * 6) * 3 * 4 * 6
    moved = 4 * 4 * 2 * (2 * 5 * 2 + 2 * 3 * 3)
    slow_products = routing_floor(layer, 4, 1, MachineRates(1e9, 1.0))
    slow_memory = routing_floor(layer, 4, 1, MachineRates(1.0, 1e9))
    assert slow_products == products
    assert slow_memory == moved


def test_floor_of_a_network_counts_its_layers_by_hand() -> None:
    """Capsule-A without a convolutional layer: 6 tokens of size 5, bigrams, 3 types."""
    config = preset("paper").replace(
        model={
            "architecture": "capsule-a",
            "ngram_sizes": (2,),
            "embeddings": "static",
            "embedding_size": 5,
            "filters": 7,
            "capsule_types": 3,
            "capsule_size": 4,
            "conv_capsules": False,
            "iterations": 1,
        }
    )
    case, n_positions = BenchCase(2, 6, 3), 5
    ngram = 2 * 2 * n_positions * (2 * 5) * 7  # batch, positions, words, filters
    linear = 2 * 2 * n_positions * 7 * (3 * 4)
    votes = 2 * (2 * n_positions * 3) * (3 + 1) * 4  # children, parents with orphan
    rates = MachineRates(1e30, 1.0)
    predict_floor = network_floor(config.model, case, rates, train=False, n_words=9)
    assert predict_floor == ngram + linear + 2 * votes
    train_floor = network_floor(config.model, case, rates, train=True, n_words=9)
    assert train_floor == 2 * ngram + 3 * linear + 6 * votes


def test_scaling_says_what_grows_and_how_far() -> None:
    threads = torch.get_num_threads()
    rows = list(bench.bench_scaling(CPU))
    ways = ["votes", "vote-free", "auto"]
    assert [row["way"] for row in rows] == ways * 4
    sizes = [(row["grows"], row["tokens"], row["threads"]) for row in rows[::3]]
    assert sizes == [
        ("length", 8, threads),
        ("length", 16, threads),
        ("threads", 8, 1),
        ("threads", 8, 2),
    ]


def test_scaling_runs_on_as_many_threads_as_a_row_says(monkeypatch) -> None:
    seen, before = [], torch.get_num_threads()

    def step(*arguments):
        return lambda: seen.append(torch.get_num_threads())

    monkeypatch.setattr(speed, "make_step", step)
    monkeypatch.setattr(speed, "SMALL", {})
    monkeypatch.setattr(speed, "thread_counts", lambda cores: [2])
    rows = list(bench.bench_scaling(CPU, votes=False))
    assert [row["threads"] for row in rows] == [2, 2]
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


def test_scaling_restores_the_threads_after_a_fault(monkeypatch) -> None:
    monkeypatch.setattr(speed, "SMALL", {})
    monkeypatch.setattr(speed, "thread_counts", lambda cores: [2])

    def broken(*arguments):
        raise RuntimeError("no step")

    monkeypatch.setattr(speed, "make_step", broken)
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="no step"):
        list(bench.bench_scaling(CPU))
    assert torch.get_num_threads() == before


def test_scaling_reports_sizes_beyond_the_memory(monkeypatch) -> None:
    def full(config, case, backend, *rest):
        if backend == "votes":
            raise torch.OutOfMemoryError("too many votes")
        return lambda: None

    monkeypatch.setattr(speed, "make_step", full)
    rows = list(bench.bench_scaling(CPU))
    assert [row["ms"] == "out of memory" for row in rows] == [True, False, False] * 4


def test_scaling_leaves_out_too_many_votes_on_a_cpu(monkeypatch) -> None:
    monkeypatch.setattr(speed, "MOST_VOTES", 0)
    rows = list(bench.bench_scaling(CPU))
    assert [row["ms"] == "left out" for row in rows] == [True, False, False] * 4


def test_several_runs_step_together(monkeypatch) -> None:
    """Two processes of this machine, each stepping for a moment."""
    monkeypatch.setattr(many, "SMALL_COUNTS", (2,))
    monkeypatch.setattr(many, "work", step_counted)
    (row,) = bench.bench_many(CPU)
    assert row["runs"] == 2
    assert row["steps_per_second"] == 14.0  # the sum of both processes
    assert row["times_one_run"] == 1.0


def step_counted(device, precision, barrier, rates) -> None:
    barrier.wait(timeout=60)  # both processes start at the same time
    rates.put(7.0)


def test_a_rate_counts_calls_over_the_seconds(monkeypatch) -> None:
    clock = itertools.count()  # every reading is a second later
    monkeypatch.setattr(many, "SECONDS", 3.0)
    monkeypatch.setattr(many.time, "perf_counter", lambda: float(next(clock)))
    calls = []
    rate = many.rate_of(lambda: calls.append(1), CPU)
    assert len(calls) == 10  # two rounds of five fit before the third second
    assert rate == pytest.approx(10 / 4)


def test_training_and_prediction_are_timed() -> None:
    rows = list(bench.bench_train(CPU, cases=("mr",)))
    assert [row["way"] for row in rows] == ["votes", "vote-free", "auto"]
    plain, ours, whole = bench.bench_predict(CPU, n_texts=8, mean_tokens=5)
    ways = [row["way"] for row in (plain, ours, whole)]
    assert ways == ["vote-free", "auto", "auto, from strings"]
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
        (["bench", "train", "--precision", "8"], "precision must be .*; got '8'"),
    ],
)
def test_bad_benchmarks_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
