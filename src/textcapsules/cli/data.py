"""`textcapsules data list`, `show` and `fetch`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.cli.options import config_flags
from textcapsules.cli.show import print_json, print_table, say

__all__ = ["app"]

app = typer.Typer(help="The corpora: what there is, what it holds, where to get it.")

DataDir = Annotated[
    Path | None, typer.Option(help="Folder of corpora (or TEXTCAPSULES_DATA).")
]
Json = Annotated[bool, typer.Option("--json", help="End with one JSON object.")]


@app.command("list")
def list_corpora(data_dir: DataDir = None, json: Json = False) -> None:
    """List the corpora, and which of them are here.

    textcapsules data list --data-dir corpora
    """
    from textcapsules.data.read import available, data_folder
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
    """Show a corpus: counts a split and a label, lengths, source, licence, checksums.

    textcapsules data show reuters-multi --data-dir corpora --json
    """
    from textcapsules.config import DataConfig
    from textcapsules.data.load import load_corpus
    from textcapsules.data.read import describe

    config = DataConfig(**{**flags.get("data", {}), "source": corpus})
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
    for remark in facts["facts"].get("remarks", []):
        say(f"note: {remark}")
    if json:
        print_json(facts)


@app.command("fetch")
def fetch(
    corpora: Annotated[list[str], typer.Argument(help="Names, or all.")],
    data_dir: DataDir = None,
    overwrite: Annotated[bool, typer.Option(help="Build files anew.")] = False,
    json: Json = False,
) -> None:
    """Download corpora from their public sources and build the canonical files.

    textcapsules data fetch mr trec --data-dir corpora
    """
    from textcapsules.data.catalogue import CATALOGUE
    from textcapsules.data.fetch import fetch as fetch_corpus

    names = list(CATALOGUE) if corpora == ["all"] else corpora
    written: dict[str, list[str]] = {}
    for name in names:
        paths = fetch_corpus(name, data_dir, overwrite=overwrite)
        written[name] = [str(path) for path in paths]
        say(f"{name}: {', '.join(written[name]) or 'already here'}")
    if json:
        print_json({"written": written})
