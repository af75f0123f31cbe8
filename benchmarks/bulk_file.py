r"""A large file, from reading to writing: rows per second, and whether memory grows.

Writes a Parquet file of random texts, some of whose words the model does not know, and
predicts it as `textcapsules predict MODEL --data FILE --out FILE` does.

    textcapsules train --data tickets-multi --preset best --task multi-label \
        --out runs/words
    python benchmarks/bulk_file.py runs/words --rows 5000000 --out bulk.json
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from textcapsules.base.files import write_json
from textcapsules.inference.bulk import predict_table
from textcapsules.lab.paper.runs import commit
from textcapsules.model.classifier import TextClassifier

MEAN_WORDS, LEAST_WORDS = 20, 3
INVENTED = 0.1  # share of words that no model knows
PART = 50_000  # rows drawn at a time
POINTS = 10  # of the file at which the memory is noted


def main() -> None:
    """Write, predict and measure a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", type=Path, help="JSON file to write the record to.")
    args = parser.parse_args()
    classifier = TextClassifier.load(args.model)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "texts.parquet", Path(folder) / "labels.parquet"
        n_words = write_texts(source, classifier.tokenizer.words[2:], args.rows)
        record = measure(classifier, source, target, args.rows)
        record["words_per_row"] = round(n_words / args.rows, 1)
        sizes = [each.stat().st_size for each in (source, target)]
        record["file_mb"] = [round(size / 1e6) for size in sizes]
    if args.out is not None:
        write_json(args.out, record)
    sys.stdout.write(f"{record}\n")


def write_texts(path: Path, words: Sequence[str], n_rows: int) -> int:
    """Write random texts of a model's words and of invented ones; count their words."""
    draw, n_words = np.random.default_rng(0), 0
    vocabulary = np.array(words, dtype=object)
    made = ["".join(draw.choice(list("bdfgklmnprstz"), 9)) for _ in range(1000)]
    invented = np.array(made, dtype=object)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, PART):
            n = min(PART, n_rows - start)
            lengths = np.maximum(draw.poisson(MEAN_WORDS, n), LEAST_WORDS)
            of_text = draw.choice(vocabulary, lengths.sum())
            is_new = draw.random(len(of_text)) < INVENTED
            of_text[is_new] = draw.choice(invented, is_new.sum())
            parts = np.split(of_text, lengths.cumsum()[:-1])
            texts = [" ".join(part) for part in parts]
            ids = pa.array(np.arange(start, start + n))
            writer.write_batch(pa.record_batch([ids, pa.array(texts)], schema))
            n_words += int(lengths.sum())
    return n_words


def measure(
    classifier: TextClassifier, source: Path, target: Path, n_rows: int
) -> dict[str, object]:
    """Predict a file; return its rows per second and the memory along the way."""
    process, done, memory = psutil.Process(), 0, []

    def on_rows(n: int) -> None:
        nonlocal done
        done += n
        if done * POINTS >= len(memory) * n_rows:
            memory.append(round(process.memory_info().rss / 1e6))

    wall, cpu = time.perf_counter(), time.process_time()
    summary = predict_table(classifier, source, target, on_rows=on_rows)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    written = pq.ParquetFile(target).metadata.num_rows
    if not summary.texts == written == n_rows:
        raise SystemExit(f"{n_rows} rows, but {summary.texts} read, {written} written")
    return {
        "texts": n_rows,
        "labels": len(classifier.labels.names),
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "rows_per_second": round(n_rows / wall),
        "memory_mb": memory,
        "threads": torch.get_num_threads(),
        "commit": commit(),
    }


if __name__ == "__main__":
    main()
