"""Texts as the word pieces of a pretrained encoder, sentence by sentence.

An encoder mixes all words of what it reads at once: encoded as a whole, a text of two
topics has two topics in every state, and nothing is left to tell apart. So a text is
cut into sentences, and each is encoded by itself (`text.encoder`). A sentence may have
two topics too ("I was charged twice, and the app crashes"): it can be cut further,
into clauses. Where each text has one topic, whole texts can be read instead.

A document holds one row number per word piece and no special tokens. Row 0 is padding,
row 1 the unknown word; a piece with the encoder's number p has row 2 + p, or 2 + V + p
where it begins a sentence (V: the encoder's vocabulary). So documents can be joined and
cut like any others, and the sentences are still known. A text read as a whole has no
such marks, and two of them, joined, are read as one.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from textcapsules.base.errors import ModelFolderError
from textcapsules.base.files import read_regular, write_text
from textcapsules.text.tokenize import Piece, valid_unicode
from textcapsules.text.vocabulary import PAD, UNK, UNK_ID, Located, Token

__all__ = [
    "FIRST_PIECE",
    "PieceTokenizer",
    "clause_places",
    "keep_pieces",
    "sentence_places",
    "split_sentences",
]

FIRST_PIECE = UNK_ID + 1  # the row of the encoder's piece 0
TOGETHER = 1024  # texts; bounds the memory of the encodings in flight
MAX_BYTES = 1 << 28  # of a tokenizer's file

# A stop after one of these, or after a single letter, ends no sentence.
ABBREVIATIONS = frozenset(
    [
        "approx",
        "apr",
        "aug",
        "bros",
        "co",
        "corp",
        "dec",
        "dept",
        "dr",
        "e.g",
        "est",
        "etc",
        "feb",
        "fig",
        "gen",
        "gov",
        "i.e",
        "inc",
        "jan",
        "jr",
        "jul",
        "jun",
        "lt",
        "ltd",
        "mar",
        "mr",
        "mrs",
        "ms",
        "mt",
        "no",
        "nov",
        "oct",
        "pct",
        "prof",
        "rep",
        "rev",
        "sen",
        "sep",
        "sept",
        "sr",
        "st",
        "u.k",
        "u.s",
        "vs",
    ]
)
STOP = re.compile(r"([.!?…。！？]+)([\"'”’)\]]*)(?=\s)|\n\s*\n|\n(?=\s*[-*•])")
LAST_WORD = re.compile(r"[\w.]+$")
# A comma or semicolon before one of these begins a clause, if both sides have words
# enough to say something.
LINK = re.compile(
    r"[,;](?=\s+(?:and|also|although|but|plus|so|then|while|yet)\s)", re.IGNORECASE
)
CLAUSE_WORDS = 3
BEGINS_WORD = (
    "▁",
    "Ġ",
)  # how pieces of SentencePiece and of byte-level BPE begin words


def clause_places(text: str) -> list[tuple[int, int]]:
    """Return where each clause of a text's sentences begins and ends.

    >>> text = "I was charged twice, and the app crashes. Salt, and a bit of pepper."
    >>> [text[start:end] for start, end in clause_places(text)]
    ['I was charged twice,', 'and the app crashes.', 'Salt, and a bit of pepper.']
    """
    return [
        place for whole in sentence_places(text) for place in cut_clauses(text, *whole)
    ]


def cut_clauses(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return where the clauses of one sentence stand."""
    places = []
    for match in LINK.finditer(text, start, end):
        sides = text[start : match.start()], text[match.end() : end]
        # The word that links is none of the clause's own.
        if all(
            len(side.split()) >= least
            for side, least in zip(sides, (CLAUSE_WORDS, CLAUSE_WORDS + 1), strict=True)
        ):
            places.append(strip_place(text, start, match.end()))
            start = match.end()
    return [*places, strip_place(text, start, end)]


def sentence_places(text: str) -> list[tuple[int, int]]:
    """Return where each sentence begins and ends; together they hold every word.

    >>> text = "It cost $3.50 at Smith Co. today! Why? i.e. twice."
    >>> [text[start:end] for start, end in sentence_places(text)]
    ['It cost $3.50 at Smith Co. today!', 'Why?', 'i.e. twice.']
    """
    places, start = [], 0
    for match in STOP.finditer(text):
        if match[1] == "." and ends_abbreviation(text[start : match.start()]):
            continue
        places.append((start, match.end()))
        start = match.end()
    places.append((start, len(text)))
    stripped = (strip_place(text, *place) for place in places)
    return [place for place in stripped if place[0] < place[1]]


def ends_abbreviation(text: str) -> bool:
    """Tell whether the last word of a text is one that a full stop belongs to."""
    word = LAST_WORD.search(text[-20:])
    if word is None:
        return False
    letters = word[0].lower()
    is_initial = len(letters) == 1 and letters.isalpha() and letters != "i"
    return is_initial or letters in ABBREVIATIONS


def strip_place(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a place without the blanks at its ends."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, end - (len(part) - len(part.rstrip())))


def split_sentences(
    rows: NDArray[np.int64], n_pieces: int, max_pieces: int | None = None
) -> list[NDArray[np.int64]]:
    """Return the encoder's piece numbers of each sentence of a document (T,).

    Args:
        rows: of a `PieceTokenizer`; the unknown word, which has no piece, becomes -1.
        n_pieces: V, the encoder's vocabulary.
        max_pieces: per sentence; a longer one, such as two stretches joined inside a
            sentence, is cut into several.
    """
    begins = rows >= FIRST_PIECE + n_pieces
    pieces = np.where(rows > UNK_ID, (rows - FIRST_PIECE) % n_pieces, -1)
    sentences = np.split(pieces, np.flatnonzero(begins[1:]) + 1)
    if max_pieces is None:
        return sentences
    return [
        sentence[start : start + max_pieces]
        for sentence in sentences
        for start in range(0, max(len(sentence), 1), max_pieces)
    ]


def keep_pieces(
    rows: NDArray[np.int32], kept: NDArray[np.bool_], n_pieces: int
) -> NDArray[np.int32]:
    """Return the pieces of a document that are kept; sentences begin where they did.

    The first piece left of a sentence gets the row of one that begins it.

    Args:
        rows: (T,), of a `PieceTokenizer`.
        kept: (T,).
        n_pieces: V, the encoder's vocabulary.

    >>> rows = np.array([2 + 5 + 1, 2 + 3, 2 + 5 + 0, 2 + 4])  # of 5 pieces
    >>> keep_pieces(rows, np.array([True, True, False, True]), 5).tolist()
    [8, 5, 11]
    """
    begins = rows >= FIRST_PIECE + n_pieces
    sentence = np.cumsum(begins)[kept]
    inside = np.where(begins, rows - n_pieces, rows)[kept]
    # The unknown word has no row of its own at the beginning of a sentence.
    is_first = (np.diff(sentence, prepend=-1) != 0) & (inside > UNK_ID)
    return (inside + n_pieces * is_first).astype(np.int32)


def text_places(text: str) -> list[tuple[int, int]]:
    """Return where a text begins and ends, as the one thing to be read.

    >>> text_places(" One. Two. "), text_places(" ")
    ([(1, 10)], [])
    """
    place = strip_place(text, 0, len(text))
    return [place] if place[0] < place[1] else []


# By the names of the option `--encode-by`.
PLACES = {
    "sentences": sentence_places,
    "clauses": clause_places,
    "texts": text_places,
}


class PieceTokenizer:
    """Turns texts into documents of an encoder's word pieces.

    It offers what `text.vocabulary.TextTokenizer` offers to readers of documents.
    """

    rule = "pieces"
    first_word = FIRST_PIECE

    def __init__(self, content: str, *, max_pieces: int, by: str = "sentences") -> None:
        """Make a tokenizer of a `tokenizer.json`.

        Args:
            content: of that file.
            max_pieces: per sentence; longer ones are cut into several.
            by: what is encoded by itself, "sentences", "clauses" or "texts".
        """
        self.content, self.max_pieces = content, max_pieces
        self.by, self.places = by, PLACES[by]
        self._tokenizer = Tokenizer.from_str(content)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # A text that says "[SEP]" means these letters.
        self._tokenizer.encode_special_tokens = True
        self.n_pieces = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self._unknown = self.unknown_piece()

    def cut_by(self, by: str) -> "PieceTokenizer":
        """Return a tokenizer that cuts texts into "sentences" or "clauses", or not."""
        other = copy.copy(self)
        other.by, other.places = by, PLACES[by]
        return other

    @property
    def reads_whole(self) -> bool:
        """Tell whether texts are read as a whole: no piece begins a sentence."""
        return self.by == "texts"

    @property
    def n_marked(self) -> int | None:
        """Return V where documents show which pieces begin a sentence, else None."""
        return None if self.reads_whole else self.n_pieces

    @property
    def n_words(self) -> int:
        """Rows: padding, the unknown word, every piece inside and at the beginning."""
        return FIRST_PIECE + 2 * self.n_pieces

    @property
    def words(self) -> list[str]:
        """The piece of every row."""
        pieces = [self._tokenizer.id_to_token(n) or "" for n in range(self.n_pieces)]
        return [PAD, UNK, *pieces, *pieces]

    @cached_property
    def continues(self) -> NDArray[np.bool_]:
        """Which rows (N,) go on with the word before.

        Some encoders mark the pieces inside a word ("##ed"), others those that begin
        one ("▁word", "Ġword"). At the beginning of a sentence every piece begins one.
        """
        pieces = self.words[FIRST_PIECE : FIRST_PIECE + self.n_pieces]
        if any(piece.startswith(BEGINS_WORD) for piece in pieces):
            inside = [
                piece[:1].isalnum() and not piece.startswith(BEGINS_WORD)
                for piece in pieces
            ]
        else:
            inside = [piece.startswith("##") for piece in pieces]
        return np.array([False] * FIRST_PIECE + inside + [False] * self.n_pieces)

    def unknown_piece(self) -> int | None:
        """Return the number of the encoder's piece for what it does not know."""
        name = getattr(self._tokenizer.model, "unk_token", None)
        return None if name is None else self._tokenizer.token_to_id(name)

    def special_pieces(self) -> tuple[list[int], list[int]]:
        """Return the special tokens that the encoder wants before and after a text."""
        bare = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a", add_special_tokens=True).ids
        at = next((n for n in range(len(whole)) if whole[n : n + len(bare)] == bare), 0)
        return whole[:at], whole[at + len(bare) :]

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[NDArray[np.int32]]:
        """Return the first `max_tokens` row numbers of each text, int32."""
        return [located.ids for located in self.locate(texts, max_tokens)]

    def locate(self, texts: Sequence[str], max_tokens: int) -> list[Located]:
        """Return what `encode` does, and where in the text each piece stands."""
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1; got {max_tokens}.")
        return [
            Located(np.array(rows[:max_tokens], np.int32), places[:max_tokens])
            for rows, places in self.read(texts)
        ]

    def read(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
        """Yield the rows and places of each text."""
        for start in range(0, len(texts), TOGETHER):
            part = [valid_unicode(text) for text in texts[start : start + TOGETHER]]
            sentences = [self.places(text) for text in part]
            flat = [
                text[first:last]
                for text, places in zip(part, sentences, strict=True)
                for first, last in places
            ]
            encoded = iter(self._tokenizer.encode_batch(flat, add_special_tokens=False))
            for places in sentences:
                yield self.join([(first, next(encoded)) for first, _ in places])

    def join(
        self, sentences: Sequence[tuple[int, Any]]
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the rows and places of a text's encoded sentences, one after other."""
        rows: list[int] = []
        places: list[tuple[int, int]] = []
        for shift, encoded in sentences:
            n_known = 0
            for piece, (first, last) in zip(encoded.ids, encoded.offsets, strict=True):
                places.append((shift + first, shift + last))
                if piece == self._unknown:
                    rows.append(UNK_ID)
                    continue
                begins = not self.reads_whole and n_known % self.max_pieces == 0
                rows.append(FIRST_PIECE + piece + begins * self.n_pieces)
                n_known += 1
        return rows, places

    def pieces(self, text: str, located: Located) -> list[Piece]:
        """Return located pieces as they stand in the text, in lower case."""
        return [Piece(text[a:b].lower(), a, b) for a, b in located.places]

    def tokens(self, text: str) -> list[Token]:
        """Return every piece of one text with its place and row."""
        rows, places = next(self.read([text]))
        return [
            Token(text[a:b].lower(), a, b, row)
            for row, (a, b) in zip(rows, places, strict=True)
        ]

    def save(self, path: Path | str) -> None:
        """Write the encoder's own `tokenizer.json`."""
        write_text(path, self.content)

    @classmethod
    def load(cls, path: Path | str, *, max_pieces: int) -> "PieceTokenizer":
        """Read a `tokenizer.json` of the Hugging Face library."""
        try:
            content = read_regular(path, MAX_BYTES).decode()
            return cls(content, max_pieces=max_pieces)
        except Exception as error:  # the Rust library raises nothing narrower
            reason = " ".join(str(getattr(error, "strerror", None) or error).split())
            raise ModelFolderError(
                f"{path} must be a tokenizer of the Hugging Face library; got {reason}."
                " Name an encoder whose folder has a tokenizer.json."
            ) from error
