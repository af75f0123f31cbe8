"""Binary trees over our own tokens: from the Stanford Sentiment Treebank, or made.

A tree becomes an array (N, 4) of its nodes, children before their parents: the word's
id (0 for an inner node), the offset of the parent (0 for a root), which child the node
is (0 left, 1 right), and its label (0 none, else 1 + class).

The treebank's leaves are split by our own rule, so that its sentences have the tokens
they have everywhere else. A leaf of several tokens becomes a small tree branching to
the left; a leaf without any, as a full stop may be, goes, and its sibling takes the
place of their parent.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from textcapsules.data.canonical import read_content
from textcapsules.data.convert.trees import BINARY, TOKEN, constituents
from textcapsules.data.read import data_folder
from textcapsules.errors import ConfigError, CorpusError

__all__ = ["dependency_document", "read_treebank", "tree_document"]

INNER = 0  # the word id of a node without a word


class Nodes:
    """The nodes of a tree under construction."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []  # id, offset of the parent, side, label

    def leaf(self, word: int) -> int:
        """Add a word and return its place."""
        self.rows.append([word, 0, 0, 0])
        return len(self.rows) - 1

    def join(self, left: int, right: int) -> int:
        """Put two nodes under a new one and return its place."""
        parent = self.leaf(INNER)
        for side, child in enumerate((left, right)):
            self.rows[child][1:3] = parent - child, side
        return parent

    def array(self) -> NDArray[np.int32]:
        """Return the nodes (N, 4)."""
        return np.array(self.rows, np.int32).reshape(-1, 4)


def read_treebank(data_dir: Path | str | None = None) -> dict[str, str]:
    """Return the treebank's trees in Penn Treebank form, by sentence as in `sst2`."""
    root, trees = data_folder(data_dir), {}
    for part in ("train", "dev", "test"):
        name = f"sst/trees/{part}.txt.gz"
        content = read_content(root, name, "Run 'textcapsules data fetch sst2'.")
        for line in content.decode("utf-8").removesuffix("\n").split("\n"):
            try:
                trees[constituents(line)[-1][1]] = line
            except (ValueError, IndexError) as error:
                raise CorpusError(
                    f"{root / name} must hold one tree a line; got {line[:40]!r}. "
                    "Delete the file and fetch the corpus again."
                ) from error
    return trees


def tree_document(
    tree: str, encode: Callable[[str], Sequence[int]], labels: Sequence[str] = ()
) -> NDArray[np.int32]:
    """Return a tree of the treebank as nodes (N, 4).

    Args:
        tree: in Penn Treebank form, a score of 0 to 4 at every node.
        encode: gives the ids of a leaf's tokens.
        labels: the classes, "negative" and "positive", in the model's order; without
            them no node has a label. Neutral nodes never have one.

    >>> tree_document("(3 (4 good) (2 film))", lambda word: [len(word)]).tolist()
    [[4, 2, 0, 0], [4, 1, 1, 0], [0, 0, 0, 0]]
    """
    classes = label_numbers(labels)
    nodes, unclosed = Nodes(), []
    for score, word, _ in TOKEN.findall(tree):
        if score:
            unclosed.append((int(score), []))
        elif word:
            unclosed[-1][1].extend(map(nodes.leaf, encode(word)))
        else:
            value, parts = unclosed.pop()
            if parts:
                top = parts[0]
                for part in parts[1:]:
                    top = nodes.join(top, part)
                nodes.rows[top][3] = classes.get(value, 0)
                if unclosed:
                    unclosed[-1][1].append(top)
    return nodes.array()


def label_numbers(labels: Sequence[str]) -> dict[int, int]:
    """Return 1 + class for every score of the treebank that has one."""
    unknown = set(labels) ^ set(BINARY.values()) if labels else set()
    if unknown:
        raise ConfigError(
            f"labels must be negative and positive, as the treebank's nodes have them; "
            f"got {', '.join(map(repr, labels))}. Leave the nodes' labels out."
        )
    numbers = {name: 1 + row for row, name in enumerate(labels)}
    return {score: numbers[name] for score, name in BINARY.items() if name in numbers}


def dependency_document(
    ids: Sequence[int] | NDArray, offsets: Sequence[int] | NDArray
) -> NDArray[np.int32]:
    """Return binary trees (N, 4) made of a dependency forest, for texts without one.

    A head is joined with what follows it, the nearest first, and then with what
    precedes it; words whose head is outside the document are roots.

    Args:
        ids: (T,), the words.
        offsets: (T,), where each word's head stands, relative to the word; 0: a root.
    """
    n_words = len(ids)
    heads = [place + int(offset) for place, offset in enumerate(offsets)]
    below: list[list[int]] = [[] for _ in heads]
    for place, head in enumerate(heads):
        if head != place and 0 <= head < n_words:
            below[head].append(place)
    nodes = Nodes()
    tops = [nodes.leaf(int(word)) for word in ids]
    for head in children_first(heads, below):
        for place in [k for k in below[head] if k > head]:
            tops[head] = nodes.join(tops[head], tops[place])
        for place in [k for k in reversed(below[head]) if k < head]:
            tops[head] = nodes.join(tops[place], tops[head])
    return nodes.array()


def children_first(heads: Sequence[int], below: Sequence[Sequence[int]]) -> list[int]:
    """Return the words, each after those below it; words on a cycle are left out."""
    waiting = [len(children) for children in below]
    order = [place for place, count in enumerate(waiting) if not count]
    for place in order:  # grows meanwhile
        head = heads[place]
        if head != place and 0 <= head < len(heads):
            waiting[head] -= 1
            if not waiting[head]:
                order.append(head)
    return order
