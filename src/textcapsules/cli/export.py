"""`textcapsules export`."""

from pathlib import Path
from typing import Annotated

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.cli.show import Json, print_json, say

__all__ = ["export"]

FORMATS = ("onnx",)


def export(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    form: Annotated[str, typer.Option("--format", help="onnx.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="Folder to write (MODEL-onnx).")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a model for programs that do not have textcapsules.

    Three files: model.onnx for onnxruntime, tokenizer.json for tokenizers, labels.json
    with names and thresholds. On random texts they must give the model's scores to
    1e-4, or nothing is written.

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
