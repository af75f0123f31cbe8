"""`textcapsules data list`, `show` and `fetch`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import config_flags
from textcapsules.cli.show import Json, print_json, print_table, say

__all__ = ["app"]

app = typer.Typer(
    help="The corpora: what there is, what it holds, where to get it.",
    no_args_is_help=True,
)

DataDir = Annotated[
    Path | None, typer.Option(help="Folder of corpora (or TEXTCAPSULES_DATA).")
]


@app.command("list")
def list_corpora(data_dir: DataDir = None, json: Json = False) -> None:
    """List the corpora, and which of them are here.

    Where the folder of corpora is at hand:

      textcapsules data list --data-dir corpora
    """
    from textcapsules.data.corpora import available, data_folder
    from textcapsules.data.tickets import TICKETS

    embedded = [
        {
            "name": name,
            "title": TICKETS.title,
            "task": "multi-label" if name.endswith("multi") else "single-label",
            "labels": list(TICKETS.labels),
            "licence": TICKETS.licence,
            "present": True,
            "missing": [],
        }
        for name in TICKETS.names
    ]
    records = [*embedded, *available(data_dir)]
    rows = [
        (
            r["name"],
            r["title"],
            r["task"],
            len(r["labels"]),
            "yes" if r["present"] else "no",
        )
        for r in records
    ]
    folder = data_folder(data_dir)
    print_table(
        f"corpora in {folder}", ("name", "title", "task", "labels", "here"), rows
    )
    if json:
        print_json({"folder": str(folder), "corpora": records})


@app.command("show")
@config_flags("data")
def show(
    corpus: Annotated[str, typer.Argument(help="A corpus, or a file of texts.")],
    flags: dict[str, dict[str, Any]],
    json: Json = False,
) -> None:
    """Show how many texts a corpus has, by split and label, and how long they are.

    With --json also its sources and checksums. A corpus, or your own file:

      textcapsules data show reuters-multi --data-dir corpora --json

      textcapsules data show tickets.csv --label-column topic
    """
    from textcapsules.config import DataConfig
    from textcapsules.data.corpora import describe
    from textcapsules.data.load import load_corpus

    given = flags.get("data", {})
    if "source" in given:
        raise ConfigError(
            f"data must be named once; got {corpus!r} and --data {given['source']!r}."
        )
    config = DataConfig(**{**given, "source": corpus})
    facts = describe(load_corpus(config))
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
    corpora: Annotated[list[str], typer.Argument(help="Names, or all.")],
    data_dir: DataDir = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Build files anew.")
    ] = False,
    json: Json = False,
) -> None:
    """Download corpora from their public sources and build the canonical files.

    Files that are there and whole are left alone.

      textcapsules data fetch mr trec --data-dir corpora
    """
    from textcapsules.data.catalogue import CATALOGUE, card
    from textcapsules.data.fetch import fetch as fetch_corpus

    names = list(CATALOGUE) if corpora == ["all"] else list(dict.fromkeys(corpora))
    for name in names:
        card(name)  # a wrong name is told before anything is downloaded
    done = {}
    for name in names:
        fetched = fetch_corpus(name, data_dir, overwrite=overwrite)
        parts = [f"wrote {', '.join(fetched.written)}"] if fetched.written else []
        parts += [f"kept {', '.join(fetched.kept)}"] if fetched.kept else []
        say(f"{name}: {'; '.join(parts) or 'nothing to do'} in {fetched.data_dir}")
        for remark in fetched.remarks:
            say(f"note: {remark}")
        done[name] = {**fetched._asdict(), "data_dir": str(fetched.data_dir)}
    if json:
        print_json({"fetched": done})
