"""`textcapsules bench`."""

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import Device, Json
from textcapsules.cli.show import print_json, print_table, work_bar

__all__ = ["bench"]

WHAT = ("routing", "train", "predict", "scaling", "many")
PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16")


def bench(
    what: Annotated[
        str,
        typer.Argument(help="What to time: routing, train, predict, scaling or many."),
    ],
    device: Device = "auto",
    votes: Annotated[
        bool,
        typer.Option(
            "--votes/--no-votes", help="Time the plain code that forms votes too."
        ),
    ] = True,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Time torch.compile too (slow).")
    ] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(
            help="Sizes of bench train: mr, ag or reuters; may be repeated; by default "
            "all of them."
        ),
    ] = None,
    embeddings: Annotated[
        str, typer.Option(help="Word vectors of bench train: static or non-static.")
    ] = "static",
    precision: Annotated[
        str,
        typer.Option(help="Precision on a GPU: ieee, tf32, tf32x3 or bf16."),
    ] = "ieee",
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write the record to.")
    ] = None,
    json: Json = False,
) -> None:
    """Time the kernels beside plain code, all in one run on random texts.

    textcapsules bench routing

    textcapsules bench train --case mr --out benchmarks/results/train.json
    """
    if what not in WHAT:
        raise ConfigError(f"what must be one of {', '.join(WHAT)}; got {what!r}.")
    if precision not in PRECISIONS:
        names = ", ".join(PRECISIONS)
        raise ConfigError(f"precision must be one of {names}; got {precision!r}.")
    from textcapsules.base.files import write_json
    from textcapsules.model.classifier import pick_device

    chosen = pick_device(device)
    settings = {"votes": votes, "compiled": compiled, "precision": precision}
    rows: list[dict[str, Any]] = []
    with work_bar("rows", quiet=json) as on_rows:
        for row in timed_rows(what, chosen, settings, case, embeddings):
            rows.append(row)
            if on_rows is not None:
                on_rows(1)
    names = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[row.get(name, "-") for name in names] for row in rows]
    print_table(f"{what} on {machine(chosen)['device']}", names, cells)
    record = {"bench": what, **machine(chosen), "rows": rows}
    if out is not None:
        write_json(out, record)
    if json:
        print_json(record)


def timed_rows(
    what: str,
    device: Any,
    settings: dict[str, Any],
    cases: list[str] | None,
    embeddings: str,
) -> Iterator[dict[str, Any]]:
    """Run one benchmark."""
    from textcapsules.lab import bench as library

    if unknown := set(cases or ()) - set(library.BENCH_CASES):
        names = ", ".join(library.BENCH_CASES)
        raise ConfigError(f"case must be one of {names}; got {sorted(unknown)[0]!r}.")
    if what == "predict":
        return library.bench_predict(device)
    if what == "many":
        return library.bench_many(device, precision=settings["precision"])
    if what == "routing":
        return library.bench_routing(device, **settings)
    if what == "scaling":
        settings.pop("compiled")
        return library.bench_scaling(device, **settings)
    chosen = tuple(cases or library.BENCH_CASES)
    return library.bench_train(device, embeddings=embeddings, cases=chosen, **settings)


def machine(device: Any) -> dict[str, Any]:
    """Return what the times were measured on."""
    import torch

    from textcapsules import __version__

    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "textcapsules": __version__,
    }
