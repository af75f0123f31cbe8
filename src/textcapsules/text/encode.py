"""From texts to documents: word numbers, and the structure that some networks read.

A document is an int32 array (T,) of word numbers, or (T, F) with further columns that
describe how its tokens hang together. Training, evaluation and prediction share one
encoder, so that a text is the same document to all of them.
"""

import functools
import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.errors import DataError
from textcapsules.text.treebank import (
    dependency_document,
    read_treebank,
    tree_document,
)
from textcapsules.text.trees import DependencyParser
from textcapsules.text.vocabulary import UNK_ID, TextTokenizer

__all__ = ["Encoder", "WordCounts", "count_words", "drop_unreadable", "word_ids"]

log = logging.getLogger(__name__)


def word_ids(document: NDArray) -> NDArray:
    """Return the word numbers (T,) of a document with or without further columns."""
    return document if document.ndim == 1 else document[:, 0]


def drop_unreadable(
    documents: Sequence[NDArray], first_word: int = UNK_ID + 1
) -> list[NDArray]:
    """Empty the documents without a single known word: there is nothing to go by."""
    return [
        ids if (word_ids(ids) >= first_word).any() else ids[:0] for ids in documents
    ]


class WordCounts(NamedTuple):
    """How many words of each text are known, and how many are read of it at all.

    Where characters are read, characters are counted, blanks left out.
    """

    known: NDArray[np.int64]  # (N,)
    words: NDArray[np.int64]  # (N,)


def count_words(
    documents: Sequence[NDArray], first_word: int = UNK_ID + 1
) -> WordCounts:
    """Count the words of documents that have not been emptied as unreadable.

    >>> count_words([np.array([2, 1, 7]), np.array([1]), np.array([], np.int32)])
    WordCounts(known=array([2, 0, 0]), words=array([3, 1, 0]))
    """
    known = [np.count_nonzero(word_ids(ids) >= first_word) for ids in documents]
    unknown = [np.count_nonzero(word_ids(ids) == UNK_ID) for ids in documents]
    n_known = np.array(known, np.int64)
    return WordCounts(n_known, n_known + np.array(unknown, np.int64))


class Encoder:
    """Turns texts into the documents that a configured system reads."""

    def __init__(
        self,
        config: RunConfig,
        tokenizer: TextTokenizer,
        *,
        keep_parses: bool = False,
    ) -> None:
        """Remember how texts are to be read.

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
        """Return a document a text, empty where no word of it is known.

        Args:
            texts: as they are.
            labels: the classes, where the labels of a tree's nodes are to be learnt.
        """
        return self.encode_counted(texts, labels)[0]

    def encode_counted(
        self, texts: Sequence[str], labels: Sequence[str] = ()
    ) -> tuple[list[NDArray[np.int32]], WordCounts]:
        """Return what `encode` does, and how many words of each text are known.

        Counts the words that are read: those behind the first `max_tokens` are not.
        """
        ids = self.tokenizer.encode(texts, self.config.text.max_tokens)
        counts = count_words(ids, self.tokenizer.first_word)
        documents = drop_unreadable(ids, self.tokenizer.first_word)
        if self.config.text.unknown == "drop":
            documents = [document[document != UNK_ID] for document in documents]
        return self.with_structure(texts, documents, labels), counts

    def with_structure(
        self,
        texts: Sequence[str],
        documents: list[NDArray[np.int32]],
        labels: Sequence[str],
    ) -> list[NDArray[np.int32]]:
        """Return the documents with their trees, where the system reads trees."""
        if self.config.model.architecture != "tree-lstm":
            return documents
        if self.config.rival.tree_kind == "child-sum":
            heads = self.heads(texts, documents)
            return [np.stack(pair, 1) for pair in zip(documents, heads, strict=True)]
        return self.binary_trees(texts, documents, labels)

    def heads(
        self, texts: Sequence[str], documents: Sequence[NDArray]
    ) -> list[NDArray[np.int32]]:
        """Return the offset of every word's head, (T,) a document."""
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
        """Return the treebank's tree (N, 4) of a text, or a made one if it has none."""
        found: list[NDArray[np.int32]] = [np.zeros((0, 4), np.int32)] * len(texts)
        others: list[int] = []
        for row, (text, ids) in enumerate(zip(texts, documents, strict=True)):
            if len(ids) and text in self.treebank:
                found[row] = tree_document(self.treebank[text], self.leaf_ids, labels)
            elif len(ids):
                others.append(row)
        kept = [documents[row] for row in others]
        heads = self.heads([texts[row] for row in others], kept) if others else []
        for row, ids, offsets in zip(others, kept, heads, strict=True):
            found[row] = dependency_document(ids, offsets)
        return found

    def leaf_ids(self, word: str) -> list[int]:
        """Return the numbers of the tokens of a treebank's leaf."""
        return [token.id for token in self.tokenizer.tokens(word)]

    @functools.cached_property
    def parser(self) -> DependencyParser:
        """Dependency parses, made or remembered."""
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
