"""All verbs of the command line.

A verb's module is imported when the verb is used: `--help` needs none of them, and one
verb no other.
"""

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

__all__ = ["VERBS", "app"]

# Each verb, and the line about it in the list of verbs, which is the first of its own
# help. The module of the same name in this folder has a function, or a group `app`, of
# that name.
VERBS = {
    "demo": "Train on the embedded synthetic tickets, and print and report the "
    "results.",
    "data": "List, describe and download the benchmark corpora.",
    "train": "Train a capsule network, or a baseline, and write its model folder.",
    "compare": "Train several systems on your texts, and say which is best for them.",
    "suspects": "List the training texts whose label looks wrong, the most suspect "
    "first.",
    "evaluate": "Measure how good a model is on labelled texts.",
    "predict": "Predict the labels of texts: of arguments, of a file, or of lines from "
    "a pipe.",
    "explain": "Show which phrases of a text speak for each predicted label.",
    "review": "Decide with a few keys which labels texts really deserve.",
    "calibrate": "Choose a model's thresholds anew on a few texts with all their "
    "labels.",
    "report": "Write one page about a model: how good it is, its mistakes, and the "
    "reasons.",
    "serve": "Serve models over HTTP, with a page to try them on.",
    "export": "Write a model for programs that do not have textcapsules.",
    "bench": "Time the kernels beside plain code, all in one run on random texts.",
    "reproduce": "Fill the paper's tables: do the runs without a record, then write "
    "TABLES.md.",
}
# `--file` is the former name of `--data`, and still understood.
FILE_IS_DATA = {"token_normalize_func": lambda name: "data" if name == "file" else name}
SETTINGS: dict[str, dict[str, Any]] = {
    "predict": FILE_IS_DATA,
    "explain": FILE_IS_DATA,
}


class Verb(TyperCommand):
    """The place of a verb, known by name and summary until it is used."""

    def load(self) -> Any:
        """Import the verb's module and return its command."""
        assert self.name is not None
        module = importlib.import_module(f"textcapsules.cli.{self.name}")
        if hasattr(module, "app"):  # several commands
            return typer.main.get_group(module.app)
        alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
        alone.command(self.name, context_settings=SETTINGS.get(self.name))(
            getattr(module, self.name)
        )
        return typer.main.get_command(alone)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Return a context of the verb's own command, which is what then runs."""
        return self.load().make_context(*args, **options)


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, summary in VERBS.items():
    app.command(name, help=summary, cls=Verb)(lambda: None)


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
