"""`textcapsules demo`."""

from pathlib import Path
from typing import Annotated

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import Json, Overwrite
from textcapsules.cli.serve import Port, announce
from textcapsules.cli.show import (
    loading,
    percent,
    print_json,
    print_table,
    say,
    training_bar,
)

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder to write the model and the report to.")
    ] = Path("runs/demo"),
    overwrite: Overwrite = False,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Pretrained encoder under the capsules, as for `train`. "
            "[dim]\\[default: all-MiniLM-L6-v2 if it is installed, else none][/]"
        ),
    ] = None,
    no_encoder: Annotated[
        bool,
        typer.Option(
            "--no-encoder",
            help="Train on words alone, even if an encoder is installed: in about a "
            "minute, with a smaller and faster model, but worse.",
        ),
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the model in the end, with its page.")
    ] = False,
    port: Port = 8000,
    json: Json = False,
) -> None:
    """Train on the embedded synthetic tickets, and print and report the results.

    This takes some minutes on two cores and downloads nothing. Every training ticket
    has one topic; the tickets of the second test set have two or three each.

      textcapsules demo --out runs/demo

      textcapsules demo --serve

      textcapsules predict runs/demo/model "I was charged twice"
    """
    with loading(quiet=json):
        from textcapsules.deploy.service.run import check_start
        from textcapsules.deploy.service.run import serve as run
        from textcapsules.lab.demo import demo_config, run_demo
        from textcapsules.text.encoder_files import installed_encoder

    if no_encoder and encoder is not None:
        raise ConfigError(
            f"encoder must be left out with --no-encoder; got {encoder!r}. Choose one."
        )
    if serve:
        check_start(port=port)
    config = demo_config(None if no_encoder else encoder or installed_encoder())
    with training_bar(quiet=json) as watch:
        result = run_demo(
            out,
            config=config,
            overwrite=overwrite,
            with_layer=encoder is not None,
            **watch,
        )
    rows = [
        (
            title,
            percent((result.single[name].single_label or {})["accuracy"]),
            percent(result.multi[name].multi_label["exact_match"]),
            percent(result.multi[name].multi_label["micro_f1"]),
        )
        for name, title in result.titles.items()
    ]
    header = (
        "system",
        "accuracy, one topic",
        "exact match, 2-3 topics",
        "micro F1, 2-3 topics",
    )
    print_table("synthetic tickets, trained on one topic each", header, rows)
    say(f"model: {out / 'model'}")
    say(f"report: {result.report}")
    if json:
        values = {
            "model": str(out / "model"),
            "report": str(result.report),
            "training_seconds": result.classifier.record["seconds"],
            "single": {name: e.to_dict() for name, e in result.single.items()},
            "multi": {name: e.to_dict() for name, e in result.multi.items()},
        }
        print_json(values)
    if serve:
        run([f"demo={out / 'model'}"], port=port, on_ready=announce(json=json))
