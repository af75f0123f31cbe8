"""`textcapsules train`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.cli.options import config_flags, resolve_config
from textcapsules.cli.show import Json, percent, print_json, say, training_bar

__all__ = ["train"]


@config_flags("data", "text", "model", "baseline", "loss", "train")
def train(
    flags: dict[str, dict[str, Any]],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the model (runs/model).")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="paper, released, sabour or best (the default).")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML or JSON file of options.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with the interrupted run in this folder; beside it only "
            "--epochs, to have as many in all."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run in --out.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")
    ] = False,
    keep_checkpoint: Annotated[
        bool,
        typer.Option(
            "--keep-checkpoint",
            help="Leave the checkpoint (about 4 times the model's size) in the folder, "
            "so that --resume with --epochs can add epochs to the finished run.",
        ),
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the options as TOML and stop.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a capsule network, or a system compared with, and write its model folder.

    [bold]Your own file[/], one label a row, all labels wanted of new texts:

      textcapsules train --data t.csv --label-column topic --task multi-label

    [bold]A benchmark corpus[/] with word vectors, as the paper has it:

      textcapsules train --data mr --vectors w2v.bin --preset paper

    [bold]A system compared with[/], Kim's CNN:

      textcapsules train --data mr --vectors w2v.bin --architecture cnn

    [bold]Go on[/] after an interruption:

      textcapsules train --resume runs/model
    """
    if resume is not None:
        epochs = flags.get("train", {}).pop("epochs", None)
        others = (preset, config, out, overwrite, tensorboard, keep_checkpoint)
        if any(flags.values()) or any(others) or print_config:
            raise ConfigError(
                "resume must stand alone or with --epochs, since a run keeps its "
                "options; got others beside it. Leave them out, or train anew with "
                "--out."
            )
        import textcapsules.training.run  # noqa: F401 - before goes_on

        folder = resume
        with goes_on(folder):
            classifier = _resume(folder, epochs, json)
    else:
        run = resolve_config(preset, config, flags)
        if print_config:
            print_json(run.to_dict()) if json else say(run.to_toml())
            return
        from textcapsules.training import run as runs

        folder = out or Path("runs/model")
        with goes_on(folder), training_bar(quiet=json) as watch:
            classifier = runs.train(
                run,
                folder,
                overwrite=overwrite,
                tensorboard=tensorboard,
                keep_checkpoint=keep_checkpoint,
                **watch,
            )
    record = classifier.record
    best = record["epochs"][record["best_epoch"] - 1]
    n_texts = record["texts"]["train"]
    n_joined = round(classifier.config.train.joined * n_texts)
    joined = f" and {n_joined:,} joined ones" if n_joined else ""
    least = classifier.labels.thresholds
    shown = list(dict.fromkeys(f"{each:.3f}" for each in (min(least), max(least))))
    threshold = f"threshold{'s' * (len(shown) > 1)} {' to '.join(shown)}"
    say(
        f"{folder}: {n_texts:,} texts{joined}, {len(classifier.labels.names)} "
        f"labels; best of {len(record['epochs'])} epochs is {best['epoch']} with dev "
        f"accuracy {percent(best['dev_accuracy'])}; {threshold} from "
        f"{record['calibration']['on']}."
    )
    if json:
        print_json({"folder": str(folder), **record})


@contextmanager
def goes_on(folder: Path) -> Iterator[None]:
    """Say after Ctrl-C how to go on, if there is anything to go on with.

    To be entered with torch imported: an import cut short cannot be made again.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        # Not by rich: cut short while writing, it would write that line once more.
        typer.echo(f"textcapsules: interrupted.{how_to_go_on(folder)}", err=True)
        raise typer.Exit(130) from error


def how_to_go_on(folder: Path) -> str:
    """Return what --resume would do now; nothing where there is no unfinished run."""
    from textcapsules.base.sums import read_record
    from textcapsules.training.checkpoint import epochs_done
    from textcapsules.training.folder import CHECKPOINT

    if not (folder / "config.json").exists():
        return ""
    try:
        if read_record(folder)[0].get("finished"):
            return ""
        done = epochs_done(folder / CHECKPOINT)
    except TextCapsulesError:
        return ""  # a damaged run in that folder, from before
    since = f"after epoch {done}" if done else "from the start"
    return f" Go on with --resume {folder}, {since}."


def _resume(folder: Path, epochs: int | None, quiet: bool) -> Any:
    from textcapsules.training import run as runs

    with training_bar(quiet=quiet) as watch:
        return runs.resume(folder, epochs=epochs, **watch)
