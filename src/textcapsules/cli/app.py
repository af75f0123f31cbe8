"""All verbs of the command line."""

from typing import Annotated

import typer

from textcapsules.cli import (
    bench,
    compare,
    data,
    demo,
    evaluate,
    explain,
    export,
    predict,
    report,
    reproduce,
    serve,
    suspects,
    train,
)

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# `--file` is the former name of `--data`, and still understood.
FILE_IS_DATA = {"token_normalize_func": lambda name: "data" if name == "file" else name}
app.command(name="demo")(demo.demo)
app.add_typer(data.app, name="data")
app.command(name="train")(train.train)
app.command(name="compare")(compare.compare)
app.command(name="suspects")(suspects.suspects)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="predict", context_settings=FILE_IS_DATA)(predict.predict)
app.command(name="explain", context_settings=FILE_IS_DATA)(explain.explain)
app.command(name="report")(report.report)
app.command(name="serve")(serve.serve)
app.command(name="export")(export.export)
app.command(name="bench")(bench.bench)
app.command(name="reproduce")(reproduce.reproduce)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.")
    ] = False,
) -> None:
    """Capsule networks for text: train on one label per text, predict all of them.

    The help of each command shows how to use it. To see them all at work:

      textcapsules demo
    """
    if show:
        from textcapsules import __version__
        from textcapsules.cli.show import say

        say(__version__)
        raise typer.Exit
