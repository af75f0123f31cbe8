"""Words and their numbers: a `tokenizers.Tokenizer` with a word-level vocabulary.

Row 0 is padding and row 1 the unknown word. Their names hold square brackets beside
letters, which every rule separates, and they are plain entries of the vocabulary, not
"special tokens" that are looked for in the raw text: the text "[PAD]" is not padding.
"""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer, models, trainers

from textcapsules.base.errors import ModelFolderError
from textcapsules.base.files import read_regular, write_text
from textcapsules.text.spelling import Speller
from textcapsules.text.tokenize import (
    ALPHABET,
    BLANK,
    RULES,
    Piece,
    Rule,
    build_rule,
    places_with_marks,
    split_text,
    valid_unicode,
)

__all__ = ["PAD", "PAD_ID", "UNK", "UNK_ID", "Located", "TextTokenizer", "Token"]

PAD, PAD_ID = "[PAD]", 0
UNK, UNK_ID = "[UNK]", 1

_MAX_BYTES = 1 << 30  # of a tokenizer's file; three million words have a tenth
_TEXTS_AT_ONCE = 4096  # bounds the memory of unfinished encodings

# Threads of the Rust library do not survive a fork, and it warns about a fork on stderr
# unless this is set: all cores here, one core in a forked child.
if "TOKENIZERS_PARALLELISM" not in os.environ:
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(
            after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false")
        )


class Token(NamedTuple):
    """A word of a text: `original[start:end]`, `text` in normal form, its row `id`."""

    text: str
    start: int
    end: int
    id: int


class Located(NamedTuple):
    """The tokens of a text: their rows, and `(start, end)` of each in the original."""

    ids: np.ndarray  # (T,) int32
    places: list[tuple[int, int]]


class TextTokenizer:
    """Turns texts into row numbers of a vocabulary.

    >>> tokenizer = TextTokenizer.train(["a good film", "a bad film"], rule="words")
    >>> tokenizer.words
    ['[PAD]', '[UNK]', 'a', 'film', 'bad', 'good']
    >>> tokenizer.encode(["A good plot"], max_tokens=200)[0].tolist()
    [2, 5, 1]
    """

    continues = None  # every row is a whole word

    def __init__(self, words: Sequence[str], *, rule: str) -> None:
        """Make a tokenizer of words in row order, the first two `PAD` and `UNK`."""
        if tuple(words[:2]) != (PAD, UNK):
            raise ValueError(
                f"words must begin with {PAD} and {UNK}; got {list(words[:2])!r}."
            )
        vocabulary = {word: row for row, word in enumerate(words)}
        if len(vocabulary) != len(words):
            raise ValueError("words must be all different; got some repeated.")
        self.words = list(words)
        self.rule = rule
        self._rule = build_rule(rule)
        self._tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
        _set_rule(self._tokenizer, self._rule)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        rule: str,
        min_count: int = 1,
        max_words: int = 200_000,
        extra_words: Iterable[str] = (),
    ) -> "TextTokenizer":
        """Collect the vocabulary of some texts, by count and then alphabetically.

        Args:
            texts: read once, in a stream.
            rule: a name of `textcapsules.text.tokenize.RULES`.
            min_count: rarer words become `UNK`.
            max_words: rows given to counted words at most, most frequent first.
            extra_words: get rows after those, whatever their count, unless they have
                one already. They must be in the rule's normal form (say, lower case),
                or no text will ever contain them.

        The rule `characters` has an alphabet instead: the same rows for all texts.
        """
        if rule == "characters":
            return cls([PAD, UNK, BLANK, *ALPHABET], rule=rule)
        counter = Tokenizer(models.WordLevel({UNK: UNK_ID}, unk_token=UNK))
        _set_rule(counter, build_rule(rule))
        trainer = trainers.WordLevelTrainer(
            vocab_size=max_words,
            min_frequency=min_count,
            show_progress=False,
            special_tokens=[],
        )
        counter.train_from_iterator(map(valid_unicode, texts), trainer)
        counted = counter.get_vocab()
        ordered = sorted(counted, key=counted.__getitem__)
        extra = map(valid_unicode, extra_words)
        return cls(list(dict.fromkeys([PAD, UNK, *ordered, *extra])), rule=rule)

    @property
    def first_word(self) -> int:
        """The first row of a real word: after padding, unknown word and blank."""
        return UNK_ID + 1 + (self.rule == "characters")

    @property
    def n_words(self) -> int:
        """Rows of the vocabulary, padding and the unknown word included."""
        return len(self.words)

    def encode(
        self, texts: Sequence[str], max_tokens: int, *, nearest: bool = False
    ) -> list[np.ndarray]:
        """Return the first `max_tokens` row numbers of each text, int32.

        With `nearest`, a misspelt word has the row of the known word that is meant.
        """
        _check_length(max_tokens)
        encode = self._tokenizer.encode_batch_fast
        if nearest:  # it must be known where words stand
            encode = self._tokenizer.encode_batch
        return [
            self.rows_of(each, text, max_tokens, nearest)
            for each, text in _encodings(encode, texts)
        ]

    def locate(
        self, texts: Sequence[str], max_tokens: int, *, nearest: bool = False
    ) -> list[Located]:
        """Return what `encode` does of each text, and where those tokens stand."""
        _check_length(max_tokens)
        return [
            Located(
                self.rows_of(each, text, max_tokens, nearest),
                places_with_marks(text, each.offsets)[:max_tokens],
            )
            for each, text in _encodings(self._tokenizer.encode_batch, texts)
        ]

    def pieces(self, text: str, located: Located) -> list[Piece]:
        """Return located tokens with their normal forms, also of unknown words."""
        ids, places = located.ids.tolist(), located.places
        if UNK_ID in ids and not text.isascii():  # marks and joiners need the context
            return split_text(text, self._rule)[: len(places)]
        normal = self._rule.normalizer.normalize_str
        return [
            Piece(
                self.words[row] if row != UNK_ID else normal(text[start:end]),
                start,
                end,
            )
            for row, (start, end) in zip(ids, places, strict=True)
        ]

    def rows_of(
        self, encoding: Encoding, text: str, limit: int, nearest: bool
    ) -> np.ndarray:
        """Return the first row numbers of a text; see `encode`."""
        rows = np.array(encoding.ids[:limit], np.int32)
        if nearest:
            unknown = np.flatnonzero(rows == UNK_ID).tolist()
            for place, word in self.words_at(encoding, text, unknown):
                rows[place] = self.speller.row(word) or UNK_ID
        return rows

    def words_at(
        self, encoding: Encoding, text: str, places: Sequence[int]
    ) -> Iterator[tuple[int, str]]:
        """Yield some tokens of a text, by their places, in normal form."""
        if not text.isascii():  # marks and joiners need the context
            pieces = split_text(text, self._rule) if places else []
            yield from ((place, pieces[place].text) for place in places)
            return
        for place in places:
            start, end = encoding.token_to_chars(place) or (0, 0)
            yield place, text[start:end].lower()  # as every rule has it

    @functools.cached_property
    def speller(self) -> Speller:
        """What finds the words that misspelt ones stand for, made when first used."""
        return Speller(self.words, first_word=self.first_word)

    def tokens(self, text: str) -> list[Token]:
        """Return every token of one text with its place in it."""
        rows = self._tokenizer.token_to_id
        tokens = []
        for piece in split_text(text, self._rule):
            row = rows(piece.text)
            tokens.append(Token(*piece, UNK_ID if row is None else row))
        return tokens

    def is_token(self, word: str) -> bool:
        """Tell whether a text can hold this word as one token, in this very form."""
        return [piece.text for piece in split_text(word, self._rule)] == [word]

    def with_words(self, words: Iterable[str]) -> "TextTokenizer":
        """Return a tokenizer that has further words after its own."""
        return TextTokenizer([*self.words, *words], rule=self.rule)

    def save(self, path: Path | str) -> None:
        """Write one standard `tokenizer.json`, which `tokenizers` reads by itself."""
        write_text(path, self._tokenizer.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path | str) -> "TextTokenizer":
        """Read what `save` wrote; the rule is recognised by what it does."""
        try:
            content = read_regular(path, _MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise _damaged(path, getattr(error, "strerror", error)) from error
        try:
            tokenizer = Tokenizer.from_str(content)
        except Exception as error:  # the Rust library raises nothing narrower
            raise _damaged(path, error) from error
        ids = tokenizer.get_vocab(with_added_tokens=False)
        words = sorted(ids, key=ids.__getitem__)
        rule = _recognise(tokenizer)
        if sorted(ids.values()) != list(range(len(ids))) or words[:2] != [PAD, UNK]:
            raise _damaged(path, f"rows that do not begin with {PAD} and {UNK}")
        if rule is None:
            raise _damaged(path, f"a rule that is none of {', '.join(RULES)}")
        return cls(words, rule=rule)


def _check_length(max_tokens: int) -> None:
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1; got {max_tokens}.")


def _encodings(
    encode: Callable[..., list[Encoding]], texts: Sequence[str]
) -> Iterator[tuple[Encoding, str]]:
    """Encode texts on all cores, and yield each with the text as it was read."""
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        part = list(map(valid_unicode, texts[start : start + _TEXTS_AT_ONCE]))
        yield from zip(encode(part, add_special_tokens=False), part, strict=True)


def _set_rule(tokenizer: Tokenizer, rule: Rule) -> None:
    # The stubs declare these two attributes read-only; the documentation sets them.
    tokenizer.normalizer = rule.normalizer  # type: ignore[assignment]
    tokenizer.pre_tokenizer = rule.pre_tokenizer  # type: ignore[assignment]


def _recognise(tokenizer: Tokenizer) -> str | None:
    """Return the name of the rule a tokenizer follows, if it is one of ours."""
    parts = tokenizer.normalizer, tokenizer.pre_tokenizer
    if None in parts:
        return None
    state = [part.__getstate__() for part in parts]  # type: ignore[union-attr]
    for name in RULES:
        if state == [part.__getstate__() for part in build_rule(name)]:
            return name
    return None


def _damaged(path: Path | str, got: object) -> ModelFolderError:
    reason = " ".join(str(got).split())
    return ModelFolderError(
        f"{path} must be a tokenizer saved by textcapsules; got {reason}. "
        "Copy the model folder again, or train it anew."
    )
