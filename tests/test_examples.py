"""The tables that the pages use are what their script writes."""

import importlib.util
from pathlib import Path

import pyarrow.parquet as parquet

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = ("tickets.csv", "held_out.csv", "several.csv", "lines.txt")


def test_tables_are_what_the_script_writes(tmp_path):
    spec = importlib.util.spec_from_file_location("tables", EXAMPLES / "make_tables.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.write_tables(tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes(), name
    new, kept = (
        parquet.read_table(folder / "new.parquet") for folder in (tmp_path, EXAMPLES)
    )
    assert new.equals(kept)
