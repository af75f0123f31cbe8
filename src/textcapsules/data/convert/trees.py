"""The Stanford Sentiment Treebank: trees to sentences, binary or fine, and phrases."""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping

from textcapsules.data.convert.tables import table

__all__ = ["constituents", "sst"]

FINE = ("very negative", "negative", "neutral", "positive", "very positive")
BINARY = {0: "negative", 1: "negative", 3: "positive", 4: "positive"}  # 2 is neutral

# An opening bracket with its score, a word, or a closing bracket. Words may hold a
# no-break space, so only the plain space parts them.
TOKEN = re.compile(r"\((\d) |([^() ]+)|(\))")


def constituents(tree: str) -> list[tuple[int, str]]:
    """Return score and text of every constituent, children before their parent.

    >>> constituents("(3 (2 A) (4 (4 good) (2 film)))")
    [(2, 'A'), (4, 'good'), (2, 'film'), (4, 'good film'), (3, 'A good film')]
    """
    open_nodes: list[tuple[int, list[str]]] = []
    found = []
    for score, word, _ in TOKEN.findall(tree):
        if score:
            open_nodes.append((int(score), []))
        elif word:
            open_nodes[-1][1].append(word)
        else:
            value, words = open_nodes.pop()
            found.append((value, " ".join(words)))
            if open_nodes:
                open_nodes[-1][1].extend(words)
    if open_nodes or not found:
        raise ValueError(f"tree must close all its brackets; got {tree[:40]!r}")
    return found


def _phrases(trees: list[list[tuple[int, str]]]) -> Iterator[tuple[str, str]]:
    """Yield Kim's phrases: the first of each lower-cased text, unless it is neutral."""
    seen = set()
    for tree in trees:
        for score, text in tree:
            if text.lower() not in seen:
                seen.add(text.lower())
                if score in BINARY:
                    yield BINARY[score], text


def sst(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Convert the archive of trees in Penn Treebank form."""
    files = {}
    with zipfile.ZipFile(io.BytesIO(raw["trainDevTestTrees_PTB.zip"])) as archive:
        contents = {
            part: archive.read(f"trees/{part}.txt") for part in ("train", "dev", "test")
        }
    for part, content in contents.items():
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
        trees = [constituents(line) for line in lines]
        roots = [tree[-1] for tree in trees]
        files[f"sst/trees/{part}.txt.gz"] = content
        files[f"sst/{part}_fine.tsv.gz"] = table((FINE[s], text) for s, text in roots)
        files[f"sst2/{part}.tsv.gz"] = table(
            (BINARY[score], text) for score, text in roots if score in BINARY
        )
        if part == "train":
            files["sst2/train_phrases.tsv.gz"] = table(_phrases(trees))
    return files
