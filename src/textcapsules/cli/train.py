"""`textcapsules train`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.cli.options import (
    HelpAll,
    Json,
    Overwrite,
    Preset,
    config_flags,
    resolve_run,
)
from textcapsules.cli.show import loading, percent, print_json, say, training_bar
from textcapsules.config import SECTIONS, RunConfig

__all__ = ["train"]


@config_flags(*SECTIONS, short_help=True, may_choose=True)
def train(
    flags: dict[str, dict[str, Any]],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write the model to. [dim]\\[default: runs/model][/]"
        ),
    ] = None,
    preset: Preset = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML or JSON file of options; options that are given here win."
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Continue the interrupted run in this folder, with its options; only "
            "--epochs may be given anew, the total number of epochs to reach."
        ),
    ] = None,
    overwrite: Overwrite = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")
    ] = False,
    keep_checkpoint: Annotated[
        bool,
        typer.Option(
            "--keep-checkpoint",
            help="Keep the checkpoint (about 4 times the size of the model) in the "
            "folder, so that --resume with --epochs can add epochs later.",
        ),
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all options as TOML and stop.")
    ] = False,
    json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """Train a capsule network, or a baseline, and write its model folder.

    The defaults shown are those of preset best. If another preset is named first, as in
    `train --preset paper --help-all`, they are the defaults of that one.

    [bold]Your own file[/] with one label per row, to predict all labels of new texts:

      textcapsules train --data t.csv --label-column topic --task multi-label

    [bold]A benchmark corpus[/] with word vectors, as in the paper:

      textcapsules train --data mr --vectors w2v.bin --preset paper

    [bold]A baseline[/], Kim's CNN:

      textcapsules train --data mr --vectors w2v.bin --architecture cnn

    [bold]Continue[/] after an interruption:

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
        with loading(quiet=json):
            from textcapsules.training import run as runs

        folder = resume
        with offer_resume(folder), training_bar(quiet=json) as watch:
            classifier = runs.resume(folder, epochs=epochs, **watch)
    else:
        run, on_encoder = resolve_run(preset, config, flags)
        if print_config:
            run = settle(run, on_encoder)
            print_json(run.to_dict()) if json else say(run.to_toml())
            return
        with loading(quiet=json):
            from textcapsules.training import run as runs

        folder = out or Path("runs/model")
        with offer_resume(folder), training_bar(quiet=json) as watch:
            classifier = runs.train(
                run,
                folder,
                on_encoder=on_encoder,
                overwrite=overwrite,
                tensorboard=tensorboard,
                keep_checkpoint=keep_checkpoint,
                **watch,
            )
    print_summary(folder, classifier)
    print_encoder(classifier.record)
    print_views(classifier)
    print_words(classifier)
    print_refusal(classifier)
    if json:
        print_json({"folder": str(folder), **classifier.record})


def print_summary(folder: Path, classifier: Any) -> None:
    """Print what a run was trained on, its best epoch and its thresholds."""
    record, labels = classifier.record, classifier.labels
    best = record["epochs"][record["best_epoch"] - 1]
    n_texts, n_epochs = record["texts"]["train"], len(record["epochs"])
    n_joined = round(classifier.config.train.joined * n_texts)
    joined = f" and {n_joined:,} joined ones" if n_joined else ""
    ends = (f"{each:.3f}" for each in (min(labels.thresholds), max(labels.thresholds)))
    thresholds = list(dict.fromkeys(ends))  # one where both are alike
    say(
        f"{folder}: {n_texts:,} texts{joined}, {len(labels.names)} labels; best of "
        f"{n_epochs} epoch{'s' * (n_epochs > 1)} is {best['epoch']} with dev accuracy "
        f"{percent(best['dev_accuracy'])}; threshold{'s' * (len(thresholds) > 1)} "
        f"{' to '.join(thresholds)} from {record['calibration']['on']}."
    )


def settle(run: RunConfig, on_encoder: RunConfig | None) -> RunConfig:
    """Return a run as it will be, if its texts can be read now."""
    if on_encoder is None:
        return run
    from textcapsules.base.errors import collect_warnings
    from textcapsules.data.load import load_corpus
    from textcapsules.model.classifier import pick_device
    from textcapsules.training.encoder_choice import settle_encoder

    try:
        with collect_warnings():  # training will say them
            texts = [each.text for each in load_corpus(run.data).train]
    except TextCapsulesError:
        return run
    device = pick_device(run.train.device)
    return settle_encoder(run, texts, device, on_encoder)[0]


def print_encoder(record: dict[str, Any]) -> None:
    """Print which encoder was taken where the texts had to decide, and why."""
    choice = record.get("encoder_choice")
    if choice is None:
        return
    name, reason = choice["encoder"], choice["reason"]
    if name is None:
        say(f"Trained on words alone: {reason}. --encoder names an encoder.")
    else:
        say(
            f"The pretrained encoder {name} read the texts: {reason}. --encoder none "
            "trains on words alone: faster predictions, a smaller folder."
        )


def print_views(classifier: Any) -> None:
    """Print how much word pieces count beside an encoder's states."""
    from textcapsules.training.views import FEW_TEXTS

    views = classifier.record.get("views")
    if views is None:
        return
    few = classifier.record["texts"]["dev"] < FEW_TEXTS
    said = f"as for any with under {FEW_TEXTS} dev texts" if few else "as dev texts say"
    say(
        f"States of the encoder count for {percent(views['states'])}% of the network's "
        f"score and word pieces for {percent(views['pieces'])}%, {said}. "
        "--piece-size 0 leaves pieces out: faster training."
    )


def print_words(classifier: Any) -> None:
    """Print whether a linear model of words is added, and what it is worth on dev."""
    from textcapsules.training.words import FEW_TEXTS

    record = classifier.record
    words = record.get("word_scores")
    if words is None:
        if classifier.config.train.word_scores != "none":
            say(
                "No linear model of words is added to the network: that takes "
                f"{FEW_TEXTS} dev texts; got {record['texts']['dev']}."
            )
        return
    losses, values = words["dev_loss"], words["dev"]
    if words["kind"] == "none":
        best = min(loss for kind, loss in losses.items() if kind != "none")
        say(
            "No linear model of words is added to the network: "
            + (
                "it makes no error on dev."
                if values["none"] == 1
                else f"the dev log-loss is {losses['none']:.3f}, with it {best:.3f}."
            )
        )
        return
    kinds = {"words": "single words", "pairs": "words and pairs of words"}
    alone, together = (percent(values[kind]) for kind in ("none", words["kind"]))
    measure = words["measure"].replace("-", " ")
    say(
        f"A linear model of {kinds[words['kind']]} is added to the network: dev "
        f"log-loss {losses[words['kind']]:.3f}, {losses['none']:.3f} without; dev "
        f"{measure} {together}, {alone} without. --word-scores none leaves it out."
    )


def print_refusal(classifier: Any) -> None:
    """Say so if a model was to refuse texts outside its topics and cannot."""
    from textcapsules.text.outside import FEW_TEXTS

    train = classifier.config.train
    if train.refuse and train.task == "multi-label" and classifier.rule is None:
        say(
            "Texts outside the topics will get labels too: "
            f"{classifier.record['texts']['dev']} dev texts are too few to tell them "
            f"apart, which takes {FEW_TEXTS}. Add texts, or raise --dev-fraction."
        )


@contextmanager
def offer_resume(folder: Path) -> Iterator[None]:
    """Say after Ctrl-C how to continue, if there is an unfinished run.

    To be entered with torch imported: an import cut short cannot be made again.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        # Not by rich: cut short while writing, it would write that line once more.
        typer.echo(f"textcapsules: interrupted.{how_to_resume(folder)}", err=True)
        raise typer.Exit(130) from error


def how_to_resume(folder: Path) -> str:
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
