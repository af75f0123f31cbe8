"""Corpora that come as lines: Kim's sentence files, TREC's questions, AG's CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping

__all__ = ["ag_news", "marked_lines", "table", "trec"]

AG_CLASSES = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}


def table(rows: Iterable[tuple[str, str]]) -> bytes:
    """Return rows of label and text in the canonical form."""
    return "".join(f"{label}\t{text}\n" for label, text in rows).encode()


def _decode(content: bytes) -> str:
    """Decode UTF-8 or, as Pang and Lee's files are, Windows-1252."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp1252")


def marked_lines(
    source: str, target: str, labels: Mapping[str, str]
) -> Callable[[Mapping[str, bytes]], dict[str, bytes]]:
    """Return a converter of lines ``mark text``, one class after the other.

    Args:
        source: The raw file.
        target: The canonical file.
        labels: What each mark stands for, in the order of the canonical file.
    """

    def converter(raw: Mapping[str, bytes]) -> dict[str, bytes]:
        texts: dict[str, list[str]] = {mark: [] for mark in labels}
        for line in _decode(raw[source]).split("\n"):
            mark, _, text = line.partition(" ")
            if text.strip():  # a few lines hold a mark and nothing else
                texts[mark].append(text.strip())
        rows = ((labels[mark], text) for mark in labels for text in texts[mark])
        return {target: table(rows)}

    return converter


def trec(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Convert lines ``COARSE:fine question``, once with each kind of label."""
    files = {}
    for part, source in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        # Latin-1: one question has a stray byte 0xF0.
        lines = raw[source].decode("latin-1").removesuffix("\n").split("\n")
        pairs = [line.split(" ", 1) for line in lines]
        files[f"trec/{part}.tsv.gz"] = table(
            (label.split(":")[0], text) for label, text in pairs
        )
        files[f"trec/{part}_fine.tsv.gz"] = table(
            (label, text) for label, text in pairs
        )
    return files


def ag_news(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Convert CSV rows of class number, title and description."""
    files = {}
    for part in ("train", "test"):
        text = raw[f"ag_news_{part}.csv"].decode("utf-8")
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        files[f"ag_news/{part}.tsv.gz"] = table(
            (AG_CLASSES[number], f"{title} {description}".replace("\n", " ").strip())
            for number, title, description in rows
        )
    return files
