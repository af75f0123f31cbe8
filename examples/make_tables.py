"""Writes the tables that README.md and docs/ use: synthetic tickets.

`tickets.csv` has one topic per row, as cheap labels do; `held_out.csv` is for judging,
`several.csv` has all topics of a ticket between semicolons, and `new.parquet` and
`lines.txt` wait for their labels.

    python examples/make_tables.py examples
"""

import csv
import sys
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from textcapsules.data.tickets import make_tickets


def write_tables(folder: Path) -> None:
    """Write five small files of synthetic tickets."""
    # Another seed than the demo's: these are no tickets that its model has seen.
    tickets = make_tickets(n_train=600, n_dev=1, n_test=100, n_multi=60, seed=7)
    for name, rows in (
        ("tickets", tickets.train),
        ("held_out", tickets.test),
        ("several", tickets.multi[:30]),
    ):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("message", "topic"))
            writer.writerows((row.text, "; ".join(row.topics)) for row in rows)
    new = [row.text for row in tickets.multi[30:]]
    parquet.write_table(pa.table({"message": new}), folder / "new.parquet")
    (folder / "lines.txt").write_text("\n".join(new) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]))
