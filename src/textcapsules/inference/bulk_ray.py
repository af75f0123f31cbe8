"""Predict whole files on several processes or machines, with Ray Data.

One task reads the file in the same batches as `bulk`; a pool of actors, each with the
model, adds the predictions; this process writes them in the order they were read. A
batch travels as the bytes of Arrow's own format, so that no type is changed on the way.
The file, the model and the result stay on the caller's machine: a cluster's nodes need
the package and nothing else. An actor that dies is started again, and repeats its
batch.
"""

import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from textcapsules.base.errors import TextCapsulesError
from textcapsules.data.table import stream_table
from textcapsules.data.table_formats import UNSPECIFIED, TextFormat, settle_format
from textcapsules.inference.bulk import (
    Decision,
    Summary,
    out_delimiter,
    predicted_batches,
    write_batches,
)
from textcapsules.model.classifier import TextClassifier, pack, unpack
from textcapsules.text.encode import Cuts

__all__ = ["predict_table_ray"]

NOTHING = Summary(0, 0, 0)
BATCH, FAULT = "batch", "fault"  # columns of the one row that a batch travels as


def predict_table_ray(
    classifier: TextClassifier,
    source: Path | str,
    target: Path | str | Callable[[dict[str, Any]], None],
    *,
    text_column: str = "text",
    decision: Decision = Decision(),
    overwrite: bool = False,
    on_rows: Callable[[int], None] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    excel_safe: bool = False,
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    **start: Any,
) -> Summary:
    """Add predictions to every row of a file, as `bulk.predict_table` does.

    Args:
        classifier: the model.
        source: a CSV, TSV, JSONL or Parquet file of any size.
        target: the file to write, or a function that is called with every row.
        text_column: the column to read.
        decision: how scores become labels.
        overwrite: replace the target if it is there.
        on_rows: called with the number of rows done, batch by batch.
        delimiter: the character between cells of CSV or TSV; by default detected.
        encoding: of a text file; by default UTF-8, or what a byte order mark says.
        excel_safe: keep spreadsheets from taking texts of CSV or TSV for formulas.
        address: of a running cluster; without it, one is started on this machine.
        workers: actors with the model; by default one per GPU, or else one per core.
        device: where the actors score.
        start: further arguments of `ray.init`.
    """
    # Faults of the file are reported before a cluster is started.
    given = TextFormat(delimiter, encoding)
    settled = settle_format(Path(source), (text_column,), given)
    first = next(
        stream_table(source, text_column=text_column, batch_rows=1, **settled._asdict())
    )
    next(predicted_batches(classifier, [first], text_column, decision))
    with running(address, start) as ray:
        gpus = ray.cluster_resources().get("GPU", 0) if device != "cpu" else 0
        cores = ray.cluster_resources().get("CPU", 1)
        table = read_batches(ray, Path(source).resolve(), text_column, settled)
        dataset = table.map_batches(
            Scorer,
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(
                size=workers or max(1, int(gpus or cores))
            ),
            num_cpus=1,
            num_gpus=1 if gpus else 0,
            fn_constructor_args=(
                ray.put(pack(classifier)),
                text_column,
                decision,
                device if gpus else "cpu",
            ),
        )
        return write_batches(
            results(dataset),
            target,
            decision,
            overwrite,
            on_rows,
            out_delimiter(source, target, settled),
            excel_safe,
        )


def read_batches(ray: Any, source: Path, text_column: str, settled: TextFormat) -> Any:
    """Return the file's batches as a dataset, read on this machine."""
    from ray.data.block import BlockMetadata

    class Batches(ray.data.Datasource):
        def estimate_inmemory_data_size(self) -> None:
            return None  # not known before the file is read

        def get_read_tasks(self, *_: Any, **__: Any) -> list[Any]:
            metadata = BlockMetadata(
                num_rows=None, size_bytes=None, input_files=None, exec_stats=None
            )
            task = ray.data.ReadTask(
                lambda: packed_batches(source, text_column, settled), metadata
            )
            return [task]

    here = ray.get_runtime_context().get_node_id()
    return ray.data.read_datasource(
        Batches(),
        override_num_blocks=1,
        num_cpus=0,
        label_selector={"ray.io/node-id": here},
    )


def packed_batches(
    source: Path, text_column: str, settled: TextFormat = UNSPECIFIED
) -> Iterator[pa.Table]:
    """Yield each batch of a file as one row that holds its bytes.

    A fault in the file is a last row: Ray would wrap an exception in pages of its own.
    """
    try:
        table = stream_table(source, text_column=text_column, **settled._asdict())
        for batch in table:
            yield one_row(batch)
    except TextCapsulesError as error:
        yield one_row(fault=error)


def one_row(
    batch: pa.RecordBatch | None = None,
    fault: TextCapsulesError | None = None,
    summary: Summary = NOTHING,
) -> pa.Table:
    """Return the row that travels: a batch or a fault, and the batch's counts."""
    content = None if batch is None else to_bytes(batch)
    reason = None if fault is None else pickle.dumps(fault)
    return pa.table(
        {
            BATCH: pa.array([content], pa.large_binary()),
            FAULT: pa.array([reason], pa.binary()),
            **{name: [value] for name, value in summary._asdict().items()},
        }
    )


class Scorer:
    """An actor with the model: adds predictions to packed batches."""

    def __init__(
        self, model: Any, text_column: str, decision: Decision, device: str
    ) -> None:
        self.classifier = unpack(import_ray().get(model), device)
        self.text_column, self.decision = text_column, decision

    def __call__(self, row: pa.Table) -> pa.Table:
        """Return the batch with its predictions, or the fault as it came."""
        content = row.column(BATCH)[0].as_py()
        if content is None:
            return row
        ((batch, summary),) = predicted_batches(
            self.classifier, [from_bytes(content)], self.text_column, self.decision
        )
        return one_row(batch, summary=summary)


def results(dataset: Any) -> Iterator[tuple[pa.RecordBatch, Summary]]:
    """Yield the predicted batches in the order of the file."""
    for row in dataset.iter_rows():
        if row[FAULT] is not None:
            raise pickle.loads(row[FAULT])
        counts = {name: row[name] for name in Summary._fields}
        cuts = Cuts(*map(int, counts.pop("cut")))
        yield from_bytes(row[BATCH]), Summary(**counts, cut=cuts)


def to_bytes(batch: pa.RecordBatch) -> bytes:
    """Return a batch in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_bytes(content: bytes) -> pa.RecordBatch:
    """Return the batch that `to_bytes` was given."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()


@contextmanager
def running(address: str | None, start: dict[str, Any]) -> Iterator[Any]:
    """Yield Ray, connected to a cluster; one that is started here is stopped after."""
    ray = import_ray()
    is_started_here = not ray.is_initialized()
    if is_started_here:
        check_address(address)
        try:
            ray.init(
                address or "local",
                include_dashboard=None if address else False,
                logging_level=logging.ERROR,
                log_to_driver=False,
                **start,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise TextCapsulesError(
                f"ray-address must be a running cluster's; got {address!r}: {reason}"
            ) from error
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # one block per batch, whatever its size
    try:
        yield ray
    finally:
        if is_started_here:
            ray.shutdown()


def check_address(address: str | None) -> None:
    """Refuse an address where nobody listens: Ray would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon:  # none, or a word such as `auto`
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise TextCapsulesError(
            f"ray-address must be a running cluster's; got {address!r}: {error}. "
            "Start one with `ray start --head`, or leave the address out."
        ) from error


def import_ray() -> Any:
    """Import Ray, an extra; keep it from reporting its use and from filling the log."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # failures are exceptions
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise TextCapsulesError(
            "ray must be installed to predict on several processes; got none. "
            "Run `pip install 'textcapsules[ray]'`."
        ) from error
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    return ray
