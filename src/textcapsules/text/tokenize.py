r"""The tokenisation rules, and the pieces of a text with their places in it.

A rule is a normalizer and a pre-tokenizer of the `tokenizers` library: it runs in Rust,
is saved inside a standard `tokenizer.json`, and knows where each piece stands in the
original text, which explanations need. The rules:

- `kim`: the cleaning of Kim (2014), used for the sentence corpora. Only ASCII letters,
  digits and ``( ) , ! ? ' ` `` stay; ``'s 've n't 're 'd 'll`` and ``, ! ( ) ?`` are
  split off. His code writes ``\(``, ``\)``, ``\?`` with a literal backslash, a slip of
  its replacement strings: here they have none. His code looks for contractions before
  it lower-cases and so leaves ``DON'T`` whole; here it is split as ``don't`` is.
- `reuters`: the released code's. Tokens begin with a letter and have three characters
  or more, punctuation being split off as NLTK does; a final full stop is removed
  unless the token is written with stops (``u.s.``).
- `words`: for texts in any script. Words of letters, marks and digits, with apostrophes
  and hyphens inside; numbers (``1,000.5``); every Han character, punctuation mark,
  symbol and emoji by itself. A script without spaces (Thai) gives one token per run
  of letters.
- `characters`: every character by itself, in lower case, for networks that read those.
  The 69 different characters of Zhang, Zhao and LeCun (2015) and the blank are known;
  any other is unknown. Blanks at the ends are removed.

Normalizers here replace characters one for one or remove them: the library's offsets
are not right after a replacement that inserts.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from tokenizers import PreTokenizedString, Regex, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from textcapsules.base.errors import ConfigError

__all__ = [
    "ALPHABET",
    "BLANK",
    "RULES",
    "Piece",
    "Rule",
    "RuleName",
    "build_rule",
    "places_with_marks",
    "split_text",
    "tokenize",
]

RuleName = Literal["kim", "reuters", "words", "characters"]

# Published as 70, the hyphen counted twice.
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789-,;.!?:'\"/\\|_@#$%^&*~`+=<>()[]{}\n"
BLANK = " "


class Rule(NamedTuple):
    """A normalizer and a pre-tokenizer, which turn a text into pieces."""

    normalizer: Normalizer
    pre_tokenizer: PreTokenizer


class Piece(NamedTuple):
    """One token in the rule's normal form; `original[start:end]` is where it stands."""

    text: str
    start: int
    end: int


def _replace(pattern: str, content: str) -> Normalizer:
    return normalizers.Replace(Regex(pattern), content)


def _keep(pattern: str) -> PreTokenizer:
    """Return a pre-tokenizer whose pieces are the pattern's matches."""
    return pre_tokenizers.Split(Regex(pattern), "removed", invert=True)


def _kim() -> Rule:
    normalizer = normalizers.Sequence(
        [_replace(r"[^A-Za-z0-9(),!?'`]", " "), normalizers.Lowercase()]
    )
    # A word ends where a contraction begins; its own first character may begin one.
    contraction = r"(?:'s|'ve|n't|'re|'d|'ll)"
    word = rf"[a-z0-9'`](?:(?!{contraction})[a-z0-9'`])*+"
    return Rule(normalizer, _keep(rf"[(),!?]|{word}"))


def _reuters() -> Rule:
    # Like NLTK's Treebank tokenizer: marks, quotes, dashes and dots separate words.
    marks = r"""[\s,:;@#$%&?!*\[\](){}<>"`“”]|''|--+|\.{2,}"""
    contractions = r"(?:'(?:s|m|d|ll|re|ve)?|n't)\z"
    # Every piece is matched by itself, so \A and \z are its ends.
    kept = r"\A(?:(?:\p{L}\.){2,}\z|\p{L}.+[^.](?=\.?\z))"
    pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(marks), "removed"),
            pre_tokenizers.Split(Regex(contractions), "isolated"),
            _keep(kept),
        ]
    )
    return Rule(normalizers.Lowercase(), pre_tokenizer)


def _words() -> Rule:
    normalizer = normalizers.Sequence(
        [
            # Soft hyphens, joiners and marks of direction are invisible inside words.
            _replace(r"[\u00AD\u2060\uFEFF\u200E\u200F\u202A-\u202E\u2066-\u2069]", ""),
            normalizers.NFC(),
            normalizers.Lowercase(),
            _replace(r"\u2019", "'"),
            _replace(r"[\u2010\u2011]", "-"),
        ]
    )
    # Persian and the Indic scripts use the zero-width joiners inside words.
    letter = r"[[\p{L}\p{M}\p{N}\u200C\u200D]&&[^\p{Han}]]"
    number = rf"\p{{Nd}}++(?:[.,]\p{{Nd}}++)*+(?!{letter})"
    word = rf"[[\p{{L}}\p{{N}}]&&[^\p{{Han}}]]{letter}*+(?:['\-]{letter}++)*+"
    other = r"(?![\s\p{Cc}\p{Cf}])\X"  # one grapheme, as an emoji with its skin tone
    return Rule(normalizer, _keep(rf"{number}|{word}|\p{{Han}}|{other}"))


def _characters() -> Rule:
    known = "A-Z" + re.escape(ALPHABET + BLANK)
    normalizer = normalizers.Sequence(
        [
            _replace(r"[^\S\n]", BLANK),
            # Before lower-casing, which makes two characters of some foreign ones.
            _replace(rf"[^{known}]", "\ufffd"),
            normalizers.Strip(),
            normalizers.Lowercase(),
        ]
    )
    return Rule(normalizer, _keep(r"(?m)."))  # Oniguruma's m: the dot takes all


_BUILDERS: dict[str, Callable[[], Rule]] = {
    "kim": _kim,
    "reuters": _reuters,
    "words": _words,
    "characters": _characters,
}
RULES: tuple[str, ...] = get_args(RuleName)


def build_rule(name: str) -> Rule:
    """Return the rule of that name."""
    if name not in _BUILDERS:
        raise ConfigError(f"rule must be one of {', '.join(RULES)}; got {name!r}.")
    return _BUILDERS[name]()


def tokenize(text: str, rule: str) -> list[Piece]:
    """Split one text by a rule.

    >>> [piece.text for piece in tokenize("It's (not) bad!", "kim")]
    ['it', "'s", '(', 'not', ')', 'bad', '!']
    """
    return split_text(text, build_rule(rule))


def split_text(text: str, rule: Rule) -> list[Piece]:
    """Split one text by a rule already built."""
    text = valid_unicode(text)
    splitter = PreTokenizedString(text)
    splitter.normalize(rule.normalizer.normalize)
    rule.pre_tokenizer.pre_tokenize(splitter)
    splits = splitter.get_splits(offset_referential="original", offset_type="char")
    places = places_with_marks(text, [place for _, place, _ in splits])
    return [
        Piece(word, *place) for (word, _, _), place in zip(splits, places, strict=True)
    ]


def places_with_marks(
    text: str, places: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the pieces' places, each with the marks that follow it up to the next."""
    if text.isascii():
        return places
    limits = [start for start, _ in places[1:]] + [len(text)]
    return [
        (start, _end_with_marks(text, end, limit))
        for (start, end), limit in zip(places, limits, strict=False)
    ]


def _end_with_marks(text: str, end: int, limit: int) -> int:
    """Move `end` past the marks composed into the character before it.

    Composition (NFC) leaves a character with the offsets of its base letter alone.
    """
    while end < limit and (
        unicodedata.category(text[end]).startswith("M")
        or "\u1160" <= text[end] <= "\u11ff"  # vowels and finals of Hangul
    ):
        end += 1
    return end


def valid_unicode(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 lacks, replaced one for one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text
