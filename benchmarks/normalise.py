"""What normalised weights cost: a training step with them over one without.

Both networks are preset `paper` but for `normalise`, and take turns in one run, so that
whatever else the machine does slows both.

    python benchmarks/normalise.py --out benchmarks/results/h200-normalise.json
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from textcapsules.base.files import write_json
from textcapsules.config import preset
from textcapsules.lab.bench.cases import BENCH_CASES, make_step
from textcapsules.lab.paper.runs import commit
from textcapsules.model.classifier import pick_device
from textcapsules.training.steps import EagerSteps, GraphSteps

WAYS = ("none", "total")
TURNS = 21


def main() -> None:
    """Time the steps of all cases and write the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--cases", nargs="+", default=list(BENCH_CASES))
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--out", type=Path, help="JSON file to write the record to.")
    args = parser.parse_args()
    device = pick_device(args.device)
    rows = []
    for case in args.cases:
        row = {"case": case, **compare(case, device, args.precision, args.turns)}
        rows.append(row)
        sys.stdout.write(f"{row}\n")
    if args.out is not None:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        about = {"device": name, "precision": args.precision, "commit": commit()}
        write_json(args.out, {**about, "turns": args.turns, "rows": rows})


def compare(
    case: str, device: torch.device, precision: str, turns: int
) -> dict[str, Any]:
    """Return the median milliseconds of a step of each kind, and their ratio."""
    kind = GraphSteps if device.type == "cuda" else EagerSteps
    repeats = 50 if device.type == "cuda" else 1
    steps = {}
    for way in WAYS:
        config = preset("paper").replace(
            model={"normalise": way},
            train={"precision": precision, "batch_size": BENCH_CASES[case].batch},
        )
        steps[way] = make_step(config, BENCH_CASES[case], "auto", kind, device)
        for _ in range(5):  # compiles, and captures on a GPU
            steps[way]()
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(turns):
        for way in WAYS:
            times[way].append(milliseconds(steps[way], device, repeats))
    medians = {way: statistics.median(each) for way, each in times.items()}
    return {
        **{f"{way}_ms": round(value, 4) for way, value in medians.items()},
        "ratio": round(medians["total"] / medians["none"], 4),
    }


def milliseconds(step: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Return the time of one step, the mean of some."""
    synchronise(device)
    started = time.perf_counter()
    for _ in range(repeats):
        step()
    synchronise(device)
    return 1000 * (time.perf_counter() - started) / repeats


def synchronise(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
