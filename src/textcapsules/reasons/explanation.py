"""What an explanation is made of: plain values, ready to be drawn or written as JSON.

The strength of a phrase is how far the label's score falls when the phrase is deleted
and the model predicts again, whichever method proposed the phrase (`trials`). The
strength of a token is the method's own: shares of coupling for `couplings`, parts of
the label's length for the others, below zero where it speaks against the label. Compare
those within one method only.

An explanation has phrases and strengths for every class of a model, and a reader looks
at those of a few. So its fields are computed when they are first read, from the arrays
of the batch, and then kept (`Deferred`). To its reader it is a plain value: it
compares, copies, pickles and prints as one with all its fields given.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from textcapsules.base.errors import ConfigError
from textcapsules.text.tokenize import Piece

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "ORPHAN",
    "Change",
    "CorpusExplanation",
    "Deferred",
    "Explanation",
    "Faithfulness",
    "LabelExplanation",
    "LabelPhrases",
    "MethodCurves",
    "Mistake",
    "Phrase",
    "PhraseTotal",
    "Sentence",
    "TokenSpan",
    "Trial",
    "format_strength",
]


class Deferred:
    """The base of a frozen dataclass with slots whose fields are computed on demand."""

    __slots__ = ("_source",)

    @classmethod
    def later(cls, source: Any, **known: Any) -> Self:
        """Return a value with some fields known.

        Args:
            source: has a method for each other field, called at most once.
            known: fields and their values.
        """
        made = cls.__new__(cls)
        for name, value in known.items():
            object.__setattr__(made, name, value)
        object.__setattr__(made, "_source", source)
        return made

    if not TYPE_CHECKING:  # a type checker would take any name for a field's

        def __getattr__(self, name: str) -> Any:
            """Compute a field; Python calls this where its slot is still empty."""
            if name not in self.__dataclass_fields__:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            value = getattr(self._source, name)()
            object.__setattr__(self, name, value)
            return value


FRAME_COLUMNS = (
    *("label", "score", "threshold", "given"),
    *("phrase", "start", "end", "strength"),
)
ORPHAN = "(orphan)"  # how the background category is called where it is shown

# A token: `original[start:end]` is where it stands, `text` its normal form.
TokenSpan = Piece


def format_strength(strength: float) -> str:
    """Return a strength as it is written everywhere, with two decimals.

    >>> format_strength(0.4567), format_strength(0.0012), format_strength(-0.0012)
    ('0.46', '<0.01', '>-0.01')
    >>> format_strength(0.0)
    '0'
    """
    if abs(strength) >= 0.005:
        return f"{strength:.2f}"
    return "<0.01" if strength > 0 else ">-0.01" if strength < 0 else "0"


class Phrase(NamedTuple):
    """A stretch of the text, `text == original[start:end]`, and its strength."""

    text: str
    start: int
    end: int
    strength: float  # how far the label's score falls without it
    ngram_size: int  # tokens of the phrase


class Trial(NamedTuple):
    """A stretch that was deleted, and how far the score of every label fell."""

    start: int
    end: int
    falls: tuple[float, ...]  # in the order of the model's labels


class Sentence(NamedTuple):
    """A sentence, and how far each given label's score falls without it."""

    start: int
    end: int
    falls: dict[str, float]


class Change(NamedTuple):
    """A small deletion that turns a label's decision round, tried on the model."""

    deleted: tuple[tuple[int, int], ...]  # first characters, and those after the last
    score: float  # of the label, without them


@dataclass(frozen=True, slots=True, repr=False)
class LabelExplanation(Deferred):
    """What spoke for one label, in one text."""

    label: str
    score: float  # the length of the class's capsule
    predicted: bool
    phrases: tuple[Phrase, ...]  # strongest first; none overlaps another
    tokens: tuple[float, ...]  # one strength per token, as `Explanation.tokens`
    against: tuple[Phrase, ...] = ()  # strengths below zero, the lowest first
    # What the score must reach: of one label per text, the highest of the others.
    threshold: float = 0.0
    change: Change | None = None  # None if none was found, or none asked for

    def __repr__(self) -> str:
        """Return the label, its score and its strongest phrase."""
        given = "given" if self.predicted else "not given"
        return f"LabelExplanation({self.summary()}; {given})"

    def summary(self) -> str:
        """Return one line: the score, and what it would lose without which phrase."""
        line = f"{self.label} {self.score:.2f}, threshold {self.threshold:.2f}"
        phrases = [
            f"“{p.text}” {format_strength(p.strength)}" for p in self.phrases[:2]
        ]
        return f"{line}: {', '.join(phrases)}" if phrases else line


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Deferred):
    """What spoke for every label, in one text."""

    text: str
    tokens: tuple[TokenSpan, ...]  # those the model read; an unreadable text has none
    labels: tuple[LabelExplanation, ...]  # every class, in the model's order
    orphan: LabelExplanation | None  # the background; None if the model has none
    leak: float | None  # share of the coupling mass that went to nobody
    orphan_share: float | None  # and to the orphan; both None without capsules
    predicted: tuple[str, ...]  # strongest first
    true: tuple[str, ...] | None  # the labels the text should get, where known
    method: str  # that proposed the phrases and gave the tokens their strengths
    known: int = 0  # how many of the words read are in the vocabulary
    words: int = 0  # how many words were read; of an unreadable text too
    outside: bool = False  # of the training topics: it gets no label, unless asked for
    trials: tuple[Trial, ...] = ()  # every phrase that was deleted
    sentences: tuple[Sentence, ...] = ()  # of the text that was read

    def __repr__(self) -> str:
        """Return the text's beginning and its labels, each with its first phrase."""
        start = self.text if len(self.text) <= 30 else f"{self.text[:29].rstrip()}…"
        scores = {each.label: each for each in self.labels}
        given = [
            " ".join(
                [
                    f"{name} {scores[name].score:.2f}",
                    *(f"“{phrase.text}”" for phrase in scores[name].phrases[:1]),
                ]
            )
            for name in self.predicted[:3]
        ]
        more = len(self.predicted) - len(given)
        labels = ", ".join(given) or "no label"
        return f"Explanation({start!r}: {labels}{f', {more} more' * (more > 0)})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return plain(self)

    def to_html(self) -> str:
        """Return a page with the text, its phrases highlighted; it needs no network."""
        from textcapsules.draw.pages import render_explanations

        return render_explanations([self])

    def to_png(self, path: Path | str, *, top: int = 5) -> None:
        """Write a picture of the text, its phrases marked, with a legend.

        Args:
            path: the file; an existing one is replaced.
            top: the largest number of phrases per label.
        """
        from textcapsules.base.files import write_bytes
        from textcapsules.draw.slide import draw_text

        write_bytes(Path(path), draw_text(self, top=top))

    def to_dataframe(self) -> "DataFrame":
        """Return a table of one row per label and phrase, in the model's order.

        A label without a phrase has one row, its phrase empty. Columns: label, score,
        threshold, given (was the label predicted?), phrase, start, end, strength.
        """
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise ConfigError(
                "pandas must be installed to make a data frame; got none. Run "
                "`pip install pandas`, or take `to_dict()`."
            ) from error
        rows = [
            {
                "label": label.label,
                "score": label.score,
                "threshold": label.threshold,
                "given": label.predicted,
                "phrase": phrase.text,
                "start": phrase.start,
                "end": phrase.end,
                "strength": phrase.strength,
            }
            for label in self.labels
            for phrase in (label.phrases or (Phrase("", 0, 0, 0.0, 0),))
        ]
        return DataFrame(rows, columns=list(FRAME_COLUMNS))

    def _repr_html_(self) -> str:
        """Show the highlighted text in a notebook."""
        from textcapsules.draw.pages import render_highlight

        return render_highlight(self)


@dataclass(frozen=True, slots=True)
class MethodCurves:
    """How faithful one method's ranking of the tokens is, means over cases.

    `deleted[k]` is what is left of the label's length when the `shares[k]` strongest
    tokens are deleted, `kept[k]` when only they are kept; both as shares of the length
    for the whole text. The spreads are standard deviations over cases.
    """

    method: str
    deleted: tuple[float, ...]
    kept: tuple[float, ...]
    comprehensiveness: float  # area over `deleted`: high if what was named mattered
    comprehensiveness_spread: float
    sufficiency: float  # area over `kept`: low if what was named was enough
    sufficiency_spread: float
    gap: float = 0.0  # comprehensiveness less sufficiency: high is faithful
    gap_error: float = 0.0  # its standard error
    behind: float = 0.0  # how far the gap is below the best method's, case by case
    behind_error: float = 0.0


@dataclass(frozen=True, slots=True)
class Faithfulness:
    """Whether explanations tell the truth about a model, one row per method."""

    texts: int
    cases: int  # pairs of a text and a label predicted for it
    shares: tuple[float, ...]  # of the text's tokens: where the curves were taken
    methods: tuple[MethodCurves, ...]  # `random` among them, as the yardstick
    best: str  # the method with the widest gap between the two areas
    verdict: str  # the outcome in a few sentences made from the figures
    chosen: str = ""  # the cheapest method within one standard error of the best

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return plain(self)


@dataclass(frozen=True, slots=True)
class PhraseTotal:
    """A phrase or word of a corpus: the sum of its strengths, and how often it came.

    `odds` says how much likelier its words are in texts with the label than in others.
    """

    text: str
    strength: float
    count: int
    odds: float = 0.0  # log-odds, 0 where they were not computed; never below 0


@dataclass(frozen=True, slots=True)
class LabelPhrases:
    """What spoke for one label throughout a corpus, by strength times log-odds."""

    label: str
    phrases: tuple[PhraseTotal, ...]
    words: tuple[PhraseTotal, ...]


class Mistake(NamedTuple):
    """A text that got wrong labels, and how sure the model was."""

    text: str
    predicted: tuple[str, ...]
    true: tuple[str, ...]
    confidence: float  # how far the most wrong score lies past its threshold


@dataclass(frozen=True, slots=True)
class CorpusExplanation:
    """What spoke for every label throughout a corpus, and where the model errs."""

    texts: int
    labels: tuple[LabelPhrases, ...]  # every class, in the model's order
    orphan: LabelPhrases | None
    leak: float | None  # means over the texts that could be read
    orphan_share: float | None
    mistakes: tuple[Mistake, ...]  # most confident first; none without true labels
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return plain(self)


def plain(value: Any) -> Any:
    """Turn named tuples, dataclasses and tuples into dicts and lists, at any depth."""
    if type(value) is float:  # most of an explanation: every label's every token
        return value
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if hasattr(value, "_fields"):
        return dict(zip(value._fields, map(plain, value), strict=True))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value
