"""From texts to documents: word numbers, and the structure that some networks read.

A document is an int32 array (T,) of word numbers, or (T, F) with further columns that
describe how its tokens are connected. Training, evaluation and prediction share one
encoder, so that a text is the same document to all of them.
"""

import functools
import logging
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import DataError
from textcapsules.config import RunConfig
from textcapsules.text.pieces import PieceTokenizer
from textcapsules.text.trees import (
    DependencyParser,
    dependency_document,
    read_treebank,
    tree_document,
)
from textcapsules.text.vocabulary import UNK_ID, TextTokenizer

__all__ = [
    "Cuts",
    "Encoder",
    "WordCounts",
    "count_words",
    "drop_unreadable",
    "spelling_options",
    "word_ids",
]

log = logging.getLogger(__name__)

TEXTS_AT_ONCE = 4096  # bounds the memory of texts longer than a model reads


class Cuts(NamedTuple):
    """How much of some texts was read, and how much was cut off at their ends."""

    texts: int = 0
    cut: int = 0  # texts longer than the model reads
    tokens: int = 0  # of all texts, read or not
    dropped: int = 0  # of those, the ones not read
    longest: int = 0  # tokens of the longest text

    @classmethod
    def of(cls, lengths: Sequence[int], limit: int) -> "Cuts":
        """Count texts of these lengths, read up to a limit.

        >>> Cuts.of([2, 7, 5], limit=4)
        Cuts(texts=3, cut=2, tokens=14, dropped=4, longest=7)
        """
        over = [length - limit for length in lengths if length > limit]
        longest = max(lengths, default=0)
        return cls(len(lengths), len(over), sum(lengths), sum(over), longest)

    def plus(self, other: "Cuts") -> "Cuts":
        """Return the counts of these texts and of others."""
        sums = Cuts(*(a + b for a, b in zip(self, other, strict=True)))
        return sums._replace(longest=max(self.longest, other.longest))

    def to_dict(self, limit: int) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "max_tokens": limit,
            "texts": self.cut,
            "share_dropped": self.dropped / max(self.tokens, 1),
            "longest": self.longest,
        }

    def line(self, config: RunConfig) -> str | None:
        """Return a warning for people; None if nothing was cut."""
        if not self.cut:
            return None
        unit, option = "tokens", "--max-tokens"
        if config.text.rule == "characters":
            unit, option = "characters", "--characters"
        share = 100 * self.dropped / self.tokens
        were = "was" if self.cut == 1 else "were"
        return (
            f"{self.cut:,} of {self.texts:,} texts {were} cut at "
            f"{config.text.max_tokens:,} {unit}: {share:.1f}% of all {unit} were not "
            f"read; the longest text has {self.longest:,}. Train with a higher "
            f"{option} to read more."
        )


def word_ids(document: NDArray) -> NDArray:
    """Return the word numbers (T,) of a document with or without further columns."""
    return document if document.ndim == 1 else document[:, 0]


def drop_unreadable(
    documents: Sequence[NDArray], first_word: int = UNK_ID + 1
) -> list[NDArray]:
    """Empty the documents without a single known word: they tell nothing."""
    rows, lengths = joined_words(documents)
    known = counts_within(rows >= first_word, lengths).tolist()
    return [ids if n else ids[:0] for ids, n in zip(documents, known, strict=True)]


def joined_words(
    documents: Sequence[NDArray],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the word numbers of all documents one after the other, and their lengths.

    A few operations on all words take less time than a few on every document.
    """
    words = [word_ids(ids) for ids in documents]
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    return np.concatenate([np.zeros(0, np.int32), *words]), lengths


def counts_within(
    flags: NDArray[np.bool_], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many flags are set within each document.

    >>> counts_within(np.array([True, False, True, True]), np.array([2, 0, 2]))
    array([1, 0, 2])
    """
    counts, firsts = np.zeros_like(lengths), np.cumsum(lengths) - lengths
    if (some := lengths > 0).any():
        counts[some] = np.add.reduceat(flags, firsts[some], dtype=np.int64)
    return counts


def spelling_options(
    config: RunConfig, tokenizer: TextTokenizer | PieceTokenizer
) -> dict[str, Any]:
    """Return how a tokenizer is to read misspelt words; pieces know no such words."""
    is_asked = config.text.unknown == "nearest"
    return (
        {"nearest": True} if is_asked and isinstance(tokenizer, TextTokenizer) else {}
    )


class WordCounts(NamedTuple):
    """How many words of each text are known, and how many are read.

    Networks that read characters count characters, without blanks.
    """

    known: NDArray[np.int64]  # (N,)
    words: NDArray[np.int64]  # (N,)


def count_words(
    documents: Sequence[NDArray],
    first_word: int = UNK_ID + 1,
    continues: NDArray[np.bool_] | None = None,
) -> WordCounts:
    """Count the words of documents that have not been emptied as unreadable.

    Args:
        documents: row numbers.
        first_word: the row of the first known word.
        continues: which rows go on with the word before, if words have several.

    >>> count_words([np.array([2, 1, 7]), np.array([1]), np.array([], np.int32)])
    WordCounts(known=array([2, 0, 0]), words=array([3, 1, 0]))
    """
    rows, lengths = joined_words(documents)
    is_known = rows >= first_word
    if continues is not None:
        is_known[is_known] = ~continues[rows[is_known]]
    known = counts_within(is_known, lengths)
    return WordCounts(known, known + counts_within(rows == UNK_ID, lengths))


class Encoder:
    """Turns texts into the documents that a configured system reads."""

    def __init__(
        self,
        config: RunConfig,
        tokenizer: TextTokenizer | PieceTokenizer,
        *,
        keep_parses: bool = False,
    ) -> None:
        """Keep how texts are to be read.

        Args:
            config: the run's options.
            tokenizer: gives the word numbers.
            keep_parses: add new parses to the user's cache, as training does.
        """
        self.config, self.tokenizer = config, tokenizer
        self.keep_parses = keep_parses

    def encode(
        self, texts: Sequence[str], labels: Sequence[str] = ()
    ) -> list[NDArray[np.int32]]:
        """Return one document per text, empty where no word of it is known.

        Args:
            texts: as they are.
            labels: the classes, where the labels of a tree's nodes are to be learnt.
        """
        return self.encode_counted(texts, labels)[0]

    def encode_counted(
        self, texts: Sequence[str], labels: Sequence[str] = ()
    ) -> tuple[list[NDArray[np.int32]], WordCounts, Cuts]:
        """Return what `encode` does, how many words are known, and what was cut.

        Counts only the words that are read, the first `max_tokens`.
        """
        ids, cuts = self.cut_ids(texts)
        counts = count_words(ids, self.tokenizer.first_word, self.tokenizer.continues)
        return self.documents(texts, ids, labels), counts, cuts

    def documents(
        self,
        texts: Sequence[str],
        ids: Sequence[NDArray[np.int32]],
        labels: Sequence[str] = (),
    ) -> list[NDArray[np.int32]]:
        """Return the documents of texts whose word numbers are known (`cut_ids`)."""
        documents = drop_unreadable(ids, self.tokenizer.first_word)
        if self.config.text.unknown != "keep":
            rows, lengths = joined_words(documents)
            unknown = counts_within(rows == UNK_ID, lengths).tolist()
            documents = [
                ids[ids != UNK_ID] if n else ids
                for ids, n in zip(documents, unknown, strict=True)
            ]
        return self.with_structure(texts, documents, labels)

    def with_structure(
        self,
        texts: Sequence[str],
        documents: list[NDArray[np.int32]],
        labels: Sequence[str],
    ) -> list[NDArray[np.int32]]:
        """Return the documents with their trees, where the system reads trees."""
        if self.config.model.architecture != "tree-lstm":
            return documents
        if self.config.baseline.tree_kind == "child-sum":
            heads = self.heads(texts, documents)
            pairs = zip(documents, heads, strict=True)
            return [np.stack(pair, 1) for pair in pairs]
        return self.binary_trees(texts, documents, labels)

    def cut_ids(self, texts: Sequence[str]) -> tuple[list[NDArray[np.int32]], Cuts]:
        """Return the word numbers that are read of each text, and what was cut."""
        limit, read, cuts = self.config.text.max_tokens, [], Cuts()
        options = spelling_options(self.config, self.tokenizer)
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            part = texts[start : start + TEXTS_AT_ONCE]
            whole = self.tokenizer.encode(part, sys.maxsize, **options)
            cuts = cuts.plus(Cuts.of([len(ids) for ids in whole], limit))
            # A copy, so that the rest of a long text does not stay in memory.
            read += [ids if len(ids) <= limit else ids[:limit].copy() for ids in whole]
        return read, cuts

    def heads(
        self, texts: Sequence[str], documents: Sequence[NDArray]
    ) -> list[NDArray[np.int32]]:
        """Return the offset of every word's head, (T,) per document."""
        words = [
            [token.text for token in self.tokenizer.tokens(text)[: len(ids)]]
            for text, ids in zip(texts, documents, strict=True)
        ]
        return self.parser(words)

    def binary_trees(
        self,
        texts: Sequence[str],
        documents: Sequence[NDArray],
        labels: Sequence[str],
    ) -> list[NDArray[np.int32]]:
        """Return the treebank's tree (N, 4) of each text, or one made of its parse."""
        trees: list[NDArray[np.int32]] = [np.zeros((0, 4), np.int32)] * len(texts)
        others: list[int] = []
        for row, (text, ids) in enumerate(zip(texts, documents, strict=True)):
            if len(ids) and text in self.treebank:
                trees[row] = tree_document(self.treebank[text], self.leaf_ids, labels)
            elif len(ids):
                others.append(row)
        kept = [documents[row] for row in others]
        heads = self.heads([texts[row] for row in others], kept) if others else []
        for row, ids, offsets in zip(others, kept, heads, strict=True):
            trees[row] = dependency_document(ids, offsets)
        return trees

    def leaf_ids(self, word: str) -> list[int]:
        """Return the numbers of the tokens of a treebank's leaf."""
        return [token.id for token in self.tokenizer.tokens(word)]

    @functools.cached_property
    def parser(self) -> DependencyParser:
        """The dependency parser, which remembers its parses."""
        return DependencyParser(keep=self.keep_parses)

    @functools.cached_property
    def treebank(self) -> dict[str, str]:
        """The trees that come with the corpus; none for texts from elsewhere."""
        data = self.config.data
        if not data.source.startswith("sst2"):
            return {}
        try:
            return read_treebank(data.data_dir)
        except DataError as error:
            if self.keep_parses:  # in training the trees are part of the corpus
                raise
            log.info("trees are made for all texts, for lack of a treebank: %s", error)
            return {}
