"""`textcapsules compare`."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError, WriteError
from textcapsules.cli.options import (
    FLAGS,
    HelpAll,
    Json,
    Overwrite,
    Preset,
    config_flags,
    format_value,
    resolve_config,
)
from textcapsules.cli.show import (
    err,
    percent,
    print_json,
    print_table,
    say,
    training_bar,
)
from textcapsules.config import CAPSULES, SECTIONS, RunConfig
from textcapsules.config import preset as preset_config

__all__ = ["compare", "train_command"]

MEASURES = {"accuracy": "accuracy", "exact_match": "exact match", "micro_f1": "F1"}


@config_flags(*SECTIONS, short_help=True)
def compare(
    flags: dict[str, dict[str, Any]],
    minutes: Annotated[
        float,
        typer.Option(
            help="Time for everything, in minutes: what does not fit is shortened or "
            "left out, and the table says so."
        ),
    ] = 10.0,
    test_fraction: Annotated[
        float,
        typer.Option(
            help="Share of the file held out as test texts, if there is no --test."
        ),
    ] = 0.2,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write results.json to.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the trained models in --out too.")
    ] = False,
    overwrite: Overwrite = False,
    preset: Preset = None,
    json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """Train several systems on your texts, and say which is best for them.

    TF-IDF with an SVM, a CNN and capsules; and if a pretrained encoder is installed or
    named with --encoder, a linear layer and capsules on it (`--encoder none`: without).
    All train on the same texts and are calibrated alike. Part of the file is held out
    as test texts, which are read once, at the end:

      textcapsules compare --data t.csv --label-column topic

    By default, systems that should find all labels of a text are compared, even if each
    row has one: on the test texts, and on pairs of them joined together. If you want
    one label per text, pass --task single-label.
    """
    began = time.monotonic()  # what is loaded counts too
    from textcapsules.base.files import check_new_file, write_json
    from textcapsules.data.load import is_file, load_corpus
    from textcapsules.inference import compare as comparing
    from textcapsules.inference.compare.time_plan import check_minutes
    from textcapsules.text.encoder_files import installed_encoder

    # Only the systems on an encoder read it; the others keep the preset of words.
    encoder = flags.get("text", {}).pop("encoder", None)
    config = resolve_config(preset, None, flags)
    if "architecture" in flags.get("model", {}):
        raise ConfigError(
            "architecture must be left out, since several are compared; got "
            f"{config.model.architecture!r}."
        )
    check_minutes(minutes)
    if not 0 < test_fraction < 1:
        raise ConfigError(
            f"test-fraction must be between 0 and 1; got {test_fraction:g}."
        )
    if keep and out is None:
        raise ConfigError("keep must go with --out FOLDER; got none.")
    if out is not None:
        if out.exists() and not out.is_dir():
            raise WriteError(f"{out} must be a folder; got a file. Name another.")
        check_new_file(out / "results.json", overwrite)
    if encoder is None:
        encoder = installed_encoder()
    elif encoder == "none":
        encoder = None
    if config.train.task == "auto" and is_file(config.data.source):
        config = config.replace(train={"task": "multi-label"})
    corpus = comparing.with_test_texts(config, load_corpus(config.data), test_fraction)

    @contextmanager
    def watch(title: str) -> Iterator[dict[str, Any]]:
        if not json:
            err.print(title, markup=False)
        with training_bar(quiet=json) as bars:
            yield bars

    found = comparing.compare(
        config,
        corpus,
        minutes=minutes,
        began=began,
        encoder=encoder,
        folder=out if keep else None,
        watch=watch,
    )
    command = train_command(found.best.config)
    sentence = recommendation(found)
    values = {
        "data": config.data.source,
        **found.to_dict(),
        "recommendation": sentence,
        "command": command,
    }
    if out is not None:
        write_json(out / "results.json", values)
    print_comparison(config.data.source, found)
    say(sentence)
    say(f"  {command}")
    if out is not None:
        say(f"results: {out / 'results.json'}")
    if json:
        print_json(values)


def print_comparison(source: str, found: Any) -> None:
    """Print what the rivals reach and what they cost, and what had no time."""
    kinds = [texts for texts in found.best.figures if " and " not in texts]
    columns = [(t, name) for t in kinds for name in found.best.figures[t]]
    sizes = ", ".join(
        f"{n:,} {name}{' test' * (name in kinds)}" for name, n in found.texts.items()
    )
    print_table(
        f"{source}: {sizes} texts; percent, with half the width of the 95 % interval",
        ["", *(f"{MEASURES[name]}, {texts}" for texts, name in columns)],
        [
            (each.title, *(with_spread(each.figures[t][name]) for t, name in columns))
            for each in found.results
        ],
    )
    print_table(
        f"the same, by {MEASURES[found.judged_by]} on {found.judged_on} test texts",
        (
            "",
            MEASURES[found.judged_by],
            "behind the best (95 %)",
            "settings",
            "epochs",
            "training",
            "texts/s",
            "refused: these",
            "off-topic",
        ),
        [
            (
                each.title,
                with_spread(each.figures[found.judged_on][found.judged_by]),
                distance(each) if each is not found.best else "-",
                each.n_settings,
                epochs(each),
                f"{each.train_seconds:.0f} s",
                f"{each.texts_per_second:,.0f}",
                percent(each.refused),
                percent(each.off_topic_refused),
            )
            for each in found.results
        ]
        + [(title, *["-"] * 3, "left out", *["-"] * 4) for title in found.left_out],
    )
    for each in found.results:
        if each.note:
            say(f"{each.title}: {each.note}, to stay within --minutes.")
    for title, reason in found.left_out.items():
        say(f"{title}: left out; {reason}. Raise --minutes.")
    say(f"This took {found.seconds / 60:.1f} of {found.minutes:g} minutes.")


def with_spread(figure: Any) -> str:
    """Return a figure and half the width of its interval.

    >>> from textcapsules.inference.compare import Figure
    >>> with_spread(Figure(0.5, 0.45, 0.56))
    '50.0±5.5'
    """
    return f"{percent(figure.value)}±{percent((figure.high - figure.low) / 2)}"


def epochs(result: Any) -> str:
    """Return how many epochs a rival had, and should have had if those are more."""
    short = f" of {result.planned_epochs}" if result.is_short else ""
    return f"{result.epochs}{short}"


def distance(result: Any) -> str:
    """Return how far a rival is behind the best, with the interval."""
    value, low, high = (100 * each for each in result.behind)
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


def recommendation(found: Any) -> str:
    """Return in one sentence which rival to take, and whether it is clear."""
    best, equals, unfair = found.best, found.equals(), found.unfair()
    figure = best.figures[found.judged_on][found.judged_by]
    linear = ", the linear model" if best.name == "tfidf-svm" else ""
    start = (
        f"Take {best.title}{linear}, which has the best {MEASURES[found.judged_by]} on "
        f"{found.judged_on} test texts, {percent(figure.value)}"
    )
    if not found.results[1:]:
        start = f"Take {best.title}, the only system that was compared"
    elif equals:
        names = [each.title for each in equals]
        verb = "are" if names[1:] else "is"
        start += f"; but {listed(names)} {verb} behind it by no more than noise"
    else:
        start += ", clearly ahead of the others that were compared"
    if unfair:
        start += f"; {listed(unfair)} had too little time, so raise --minutes first"
    return f"{start}:"


def listed(names: list[str]) -> str:
    """Return names as part of a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return ", ".join(names[:-1]) + " and " + names[-1] if names[1:] else names[0]


def train_command(config: RunConfig) -> str:
    """Return the command that trains with some options.

    >>> train_command(preset_config("best").replace(train={"joined": 1.0}))
    'textcapsules train --encoder none --joined 1.0'
    """
    defaults, words = preset_config(config.preset), ["textcapsules", "train"]
    if config.preset != preset_config("best").preset:
        words += ["--preset", config.preset]
    elif config.text.encoder is None and config.model.architecture in CAPSULES:
        words += ["--encoder", "none"]  # or else the texts decide about one
    for name, flag in FLAGS.items():
        value = getattr(getattr(config, flag.section), flag.field.name)
        if value == getattr(getattr(defaults, flag.section), flag.field.name):
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", format_value(value)]
    return shlex.join(words)
