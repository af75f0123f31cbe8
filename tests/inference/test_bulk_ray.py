"""Prediction over Ray Data: the plain engine's output, whatever happens to a worker.

One small cluster of this machine serves all the tests.
"""

import json
import logging
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

from textcapsules.base.errors import DataError, TextCapsulesError
from textcapsules.data.table_formats import TextFormat
from textcapsules.inference.bulk import Decision, Summary, predict_table
from textcapsules.inference.bulk_ray import (
    check_address,
    from_bytes,
    import_ray,
    one_row,
    packed_batches,
    predict_table_ray,
    results,
)
from textcapsules.model.classifier import TextClassifier
from toy import TOPICS, refusal, run_cli, toy_text, trained_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Ray's own making
]
BATCH_ROWS = 4096


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    import_ray()
    ray.init(
        "local",
        num_cpus=2,
        object_store_memory=100_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield ray
    ray.shutdown()


def write_texts(path: Path, n_rows: int) -> Path:
    draw, topics = random.Random(0), list(TOPICS)
    texts = [toy_text(topics[row % 3], draw) for row in range(n_rows)]
    texts[5], texts[n_rows - 1] = "", "\U0001f63a <script>"
    columns = {
        "number": list(range(n_rows)),
        "text": texts,
        "tags": [[str(row % 7)] * (row % 3) for row in range(n_rows)],
    }
    parquet.write_table(pa.table(columns), path)
    return path


def model() -> TextClassifier:
    return TextClassifier.load(trained_model(), "cpu")


def actor_ids() -> set[int]:
    """Return the processes of this test's own actors."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith("ray::MapWorker"):
                found.add(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def test_killed_worker_loses_no_row(cluster: Any, tmp_path: Path) -> None:
    source = write_texts(tmp_path / "in.parquet", 9 * BATCH_ROWS + 3)
    decision = Decision(scores=True)
    expected = predict_table(
        model(), source, tmp_path / "plain.parquet", decision=decision
    )
    killed: set[int] = set()
    later: set[int] = set()

    def on_rows(_: int) -> None:
        if not killed:  # the worker, at the first batch that is done
            killed.update(actor_ids())
            for number in killed:
                psutil.Process(number).kill()
        else:
            later.update(actor_ids())

    summary = predict_table_ray(
        model(),
        source,
        tmp_path / "ray.parquet",
        decision=decision,
        on_rows=on_rows,
        device="cpu",
        workers=1,
    )
    assert killed and later - killed, "a worker was killed, and another came"
    assert summary == expected
    assert summary[:3] == (9 * BATCH_ROWS + 3, 2, 2)
    found = parquet.read_table(tmp_path / "ray.parquet")
    assert found.equals(parquet.read_table(tmp_path / "plain.parquet"))
    assert found["number"].to_pylist() == list(range(len(found)))


def test_command_line_writes_the_plain_engines_file(
    cluster: Any, tmp_path: Path
) -> None:
    source = write_texts(tmp_path / "in.parquet", BATCH_ROWS + 50)
    written = []
    for engine in ("plain", "ray"):
        out = tmp_path / f"{engine}.csv"
        ran = run_cli(
            *("predict", trained_model(), "--file", source, "--out", out, "--scores"),
            *("--multi-label", "--device", "cpu", "--engine", engine, "--json"),
        )
        assert ran.code == 0, ran
        facts = json.loads(ran.out.splitlines()[-1])
        written.append((out.read_bytes(), facts["texts"], facts["unreadable"]))
    assert written[0] == written[1]
    assert written[0][1] == BATCH_ROWS + 50


class Rows:
    """What an actor passes on, without the actor."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self.tables = tables

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        return (row for table in self.tables for row in table.to_pylist())


def test_fault_far_in_the_file_is_told_as_by_the_plain_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("textcapsules.data.table_formats.BLOCK", 7 * BATCH_ROWS)
    lines = ["text", *["my cat"] * (BATCH_ROWS + 10)]
    lines[BATCH_ROWS + 6] = "my cat,2"
    source = tmp_path / "in.csv"
    source.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError) as plain:
        predict_table(model(), source, tmp_path / "out.jsonl")
    tables = list(packed_batches(source, "text"))
    with pytest.raises(DataError) as packed:
        list(results(Rows(tables)))
    assert str(packed.value) == str(plain.value)
    assert f"row {BATCH_ROWS + 6}" in str(plain.value)
    assert len(tables) == 2  # the batch before it, and the fault


def test_mistakes_are_told_before_a_cluster_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_texts(tmp_path / "in.parquet", 10)
    base = ("predict", trained_model(), "--engine")
    assert "engine must be plain or ray; got 'spark'" in refusal(*base, "spark", "x")
    assert "got 'ray' without --data" in refusal(*base, "ray", "a text")
    assert "must go with --engine ray" in refusal(
        *base, "plain", "--ray-address", "auto", "a text"
    )
    for address in ("127.0.0.1:9", "ray://127.0.0.1:9", "here:there"):
        with pytest.raises(TextCapsulesError, match=f"cluster's; got '{address}'"):
            check_address(address)
    check_address("auto")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "column" in refusal(*base, "ray", "--file", source, "--text-column", "none")
    said = refusal(*base, "ray", "--file", source)
    assert "pip install 'textcapsules[ray]'" in said


def test_file_is_read_as_the_caller_settled(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id;text\n1;café\n", encoding="latin-1")
    (table,) = packed_batches(source, "text", TextFormat(";", "latin-1"))
    batch = from_bytes(table.column("batch")[0].as_py())
    assert batch.to_pylist() == [{"id": "1", "text": "café"}]


def test_counts_of_texts_outside_travel_with_their_batch() -> None:
    batch = pa.record_batch({"text": ["a"], "outside": [True]})
    summary = Summary(1, 1, 0, outside=1)
    packed = one_row(batch, summary=summary)

    class Dataset:
        def iter_rows(self) -> list[dict[str, Any]]:
            (row,) = packed.to_pylist()
            return [row]

    ((found, counts),) = results(Dataset())
    assert found.equals(batch)
    assert counts == summary
