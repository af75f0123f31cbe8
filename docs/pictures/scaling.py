"""Makes the pictures of "How it grows" in docs/benchmarks.md from its records.

.venv/bin/python docs/pictures/scaling.py
"""

import json
from pathlib import Path

from textcapsules.draw.pictures import draw_scaling

FOLDER = Path(__file__).parent
RECORDS = FOLDER.parents[1] / "benchmarks/results"


def main() -> None:
    """Write one picture per record."""
    for path in sorted(RECORDS.glob("*-scaling.json")):
        picture = draw_scaling(json.loads(path.read_text())["rows"], form="png")
        (FOLDER / f"{path.stem}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
