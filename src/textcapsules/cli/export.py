"""`textcapsules export`."""

from pathlib import Path
from typing import Annotated

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import Json, Model, Overwrite
from textcapsules.cli.show import print_json, say

__all__ = ["export"]

FORMATS = ("onnx",)


def export(
    model: Model,
    form: Annotated[
        str, typer.Option("--format", help="Format to write; onnx is the only one.")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write to. [dim]\\[default: the model folder's name with "
            "-onnx][/]"
        ),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a model for programs that do not have textcapsules.

    It writes three files: model.onnx for onnxruntime, with the pretrained encoder if
    there is one, tokenizer.json for tokenizers, and labels.json with names and
    thresholds. They are first compared with the model on random texts: if a score
    differs by more than 1e-4 (1e-3 with words), nothing is written.

      textcapsules export runs/model --format onnx --out exported
    """
    from textcapsules.deploy.onnx.export import export_onnx
    from textcapsules.model.classifier import TextClassifier

    if form not in FORMATS:
        raise ConfigError(f"format must be {' or '.join(FORMATS)}; got {form!r}.")
    folder = out or model.with_name(f"{model.resolve().name}-{form}")
    classifier = TextClassifier.load(model, "cpu")
    facts = export_onnx(classifier, folder, overwrite=overwrite)
    say(
        f"{folder}: {', '.join(facts['files'])}; scores within "
        f"{facts['largest_difference']:.1g} of the model's on "
        f"{facts['texts_compared']} random texts."
    )
    if json:
        print_json(facts)
