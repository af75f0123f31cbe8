"""`textcapsules suspects`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError, DataError, warn
from textcapsules.cli.options import (
    HelpAll,
    Json,
    Overwrite,
    Preset,
    config_flags,
    resolve_config,
)
from textcapsules.cli.show import print_json, print_table, say, work_bar
from textcapsules.config import SECTIONS

__all__ = ["suspects"]

SHOWN = 10  # suspects printed
WIDTH = 60  # characters of a text that is printed


@config_flags(*SECTIONS, short_help=True)
def suspects(
    flags: dict[str, dict[str, Any]],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Table to write all suspects to: .csv, .tsv, .jsonl or .parquet."
        ),
    ] = None,
    overwrite: Overwrite = False,
    folds: Annotated[
        int,
        typer.Option(
            help="Parts of the texts; each is judged by a model trained on the others."
        ),
    ] = 5,
    preset: Preset = None,
    json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """List the training texts whose label looks wrong, the most suspect first.

    Every text is judged by a model that was trained without it. With the linear model
    that is the default, it takes seconds:

      textcapsules suspects --data t.csv --label-column topic --out suspects.csv

    The table has the row of the file, the text, its label, the label that is likelier,
    and by how much (confidence, from 0 to 1). With --architecture, another system
    judges, trained once per fold with the options given here.
    """
    import pyarrow as pa

    from textcapsules.base.files import check_new_file
    from textcapsules.data.load import load_numbered
    from textcapsules.data.table import open_writer
    from textcapsules.inference.suspects import (
        Suspect,
        can_be_judged,
        suspect_labels,
    )

    config = resolve_config(preset, None, flags)
    others = {*flags} - {"data"}
    if others and "architecture" not in flags.get("model", {}):
        raise ConfigError(
            "architecture must be given beside options of a system; got none. Name it "
            "with --architecture, or leave those options out."
        )
    if out is not None:
        check_new_file(out, overwrite)
    numbered, rule = load_numbered(config.data)
    single = [(row, each) for row, each in numbered if len(each.labels) == 1]
    if not single:
        raise DataError(
            f"{config.data.source} must have texts with one label each to be judged; "
            f"got several labels in all {len(numbered):,} rows."
        )
    if len(single) < len(numbered):
        warn(
            f"{len(numbered) - len(single):,} of {len(numbered):,} texts have several "
            "labels and are not judged."
        )
    rows = [row for row, _ in single]
    texts = [example.text for _, example in single]
    labels = [example.labels[0] for _, example in single]
    with work_bar("folds", quiet=json) as on_fold:
        found = suspect_labels(
            texts,
            labels,
            folds=folds,
            seed=config.data.split_seed,
            rule=rule,
            config=config if others else None,
            on_fold=on_fold,
        )
    table = [each._replace(row=rows[each.row]) for each in found]
    if out is not None:
        columns = (pa.int64(), *[pa.string()] * 3, pa.float64())
        schema = pa.schema(list(zip(Suspect._fields, columns, strict=True)))
        lines = [each._asdict() for each in table]
        with open_writer(out, schema, overwrite=overwrite) as writer:
            writer.write(pa.RecordBatch.from_pylist(lines, schema))
    n_judged = int(can_be_judged(labels, folds).sum())
    if n_judged < len(texts):
        n_left = len(texts) - n_judged
        warn(
            f"{n_left:,} of {len(texts):,} texts {'is' if n_left == 1 else 'are'} not "
            f"judged: fewer texts than folds, {folds}, have their label. Add texts, or "
            "take fewer --folds."
        )
    judged = "labels" if n_judged == len(texts) else "judged labels"
    result = f"{len(found):,} of {n_judged:,} {judged} look wrong"
    if n_judged:
        result += f" ({100 * len(found) / n_judged:.1f}%)"
    else:
        result = "no label was judged"
    say(f"{config.data.source}: {result}")
    if found:
        shown = [
            (each.row, each.label, each.suggested, f"{each.confidence:.2f}", cut(each))
            for each in table[:SHOWN]
        ]
        header = ("row", "label", "suggested", "confidence", "text")
        print_table(f"the {len(shown)} most suspect", header, shown)
    if out is not None:
        say(f"suspects: {out}")
    if json:
        print_json(
            {
                "data": config.data.source,
                "texts": len(texts),
                "judged": n_judged,
                "suspects": [each._asdict() for each in table],
                "out": None if out is None else str(out),
            }
        )


def cut(suspect: Any) -> str:
    """Return the start of a text, on one line."""
    line = " ".join(suspect.text.split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."
