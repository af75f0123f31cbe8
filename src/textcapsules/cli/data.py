"""`textcapsules data list`, `show` and `fetch`."""

from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import DataDir, Json, config_flags
from textcapsules.cli.show import print_json, print_table, say

__all__ = ["app"]

app = typer.Typer(
    help="List, describe and download the benchmark corpora.",
    no_args_is_help=True,
)


@app.command("list")
def list_corpora(data_dir: DataDir = None, json: Json = False) -> None:
    """List the corpora, and which of them are in the folder of corpora.

    textcapsules data list --data-dir corpora
    """
    from textcapsules.data.corpora import data_folder
    from textcapsules.data.load import list_corpora as list_records

    folder, records = data_folder(data_dir), list_records(data_dir)
    header = ("name", "title", "task", "labels", "here")
    rows = [
        (
            *(record[key] for key in header[:3]),
            len(record["labels"]),
            "yes" if record["present"] else "no",
        )
        for record in records
    ]
    print_table(f"corpora in {folder}", header, rows)
    if json:
        print_json({"folder": str(folder), "corpora": records})


@app.command("show")
@config_flags("data")
def show(
    flags: dict[str, dict[str, Any]],
    corpus: Annotated[
        str | None,
        typer.Argument(help="A corpus, or a file of texts; --data means the same."),
    ] = None,
    json: Json = False,
) -> None:
    """Show how many texts a corpus has, per split and label, and how long they are.

    With --json also its sources and checksums.

      textcapsules data show reuters-multi --data-dir corpora --json

      textcapsules data show tickets.csv --label-column topic
    """
    from textcapsules.config import DataConfig
    from textcapsules.data.corpora import describe
    from textcapsules.data.load import load_corpus

    options = flags.get("data", {})
    names = [name for name in (corpus, options.get("source")) if name is not None]
    if len(names) != 1:
        raise ConfigError(
            f"data must be named once; got {' and '.join(names) or 'no name'}. "
            "See textcapsules data show --help."
        )
    facts = describe(load_corpus(DataConfig(**{**options, "source": names[0]})))
    splits = facts["splits"]
    header = ("label", *splits)
    rows = [
        (label, *(splits[split]["per_label"][label] for split in splits))
        for label in facts["labels"]
    ]
    for name in ("texts", "several_labels", "mean_words", "longest_words"):
        rows.append((name.replace("_", " "), *(splits[s][name] for s in splits)))
    print_table(facts["facts"]["title"], header, rows)
    if licence := facts["facts"].get("licence"):
        say(f"licence: {licence}")
    for remark in facts["facts"].get("remarks", []):
        say(f"note: {remark}")
    if json:
        print_json(facts)


@app.command("fetch")
def fetch(
    corpora: Annotated[
        list[str], typer.Argument(help="Names of corpora, or all for every one.")
    ],
    data_dir: DataDir = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Build existing files again.")
    ] = False,
    json: Json = False,
) -> None:
    """Download corpora from their public sources and build their files.

    Files that are there and undamaged are left alone.

      textcapsules data fetch mr trec --data-dir corpora
    """
    from textcapsules.data.catalogue import CATALOGUE, card
    from textcapsules.data.fetch import fetch as fetch_corpus

    names = list(CATALOGUE) if corpora == ["all"] else list(dict.fromkeys(corpora))
    for name in names:
        card(name)  # a wrong name is refused before anything is downloaded
    results = {}
    for name in names:
        fetched = fetch_corpus(name, data_dir, overwrite=overwrite)
        parts = [f"wrote {', '.join(fetched.written)}"] if fetched.written else []
        parts += [f"kept {', '.join(fetched.kept)}"] if fetched.kept else []
        say(f"{name}: {'; '.join(parts) or 'nothing to do'} in {fetched.data_dir}")
        for remark in fetched.remarks:
            say(f"note: {remark}")
        results[name] = {**fetched._asdict(), "data_dir": str(fetched.data_dir)}
    if json:
        print_json({"fetched": results})
