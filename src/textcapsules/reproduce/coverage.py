"""How many words of each corpus's training texts have a vector, and a true one.

A file of vectors may hold estimates beside true vectors (its array `real` tells them
apart). Runs made before files could say so have no such share in their records, so it
is measured once for all and kept beside them.
"""

from pathlib import Path
from typing import Any

from textcapsules.files import write_json
from textcapsules.reproduce.cell import CORPORA
from textcapsules.reproduce.plan import Plan
from textcapsules.reproduce.runs import Place, commit
from textcapsules.reproduce.systems import system
from textcapsules.sums import read_json
from textcapsules.training.prepare import prepare

__all__ = ["COVERAGE", "measure_coverage", "read_coverage"]

COVERAGE = "vectors.json"


def measure_coverage(place: Place, folder: Path) -> None:
    """Write the shares of all corpora, read as every system with vectors reads them."""
    entry = system("cnn_static")
    shares = {
        name: prepare(place.localise(Plan().config(entry, name))).facts["vectors"]
        for name in CORPORA
    }
    write_json(folder / COVERAGE, {"commit": commit(), "corpora": shares})


def read_coverage(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the shares by corpus, none where they were not measured."""
    path = folder / COVERAGE
    return read_json(path)["corpora"] if path.exists() else {}
