"""Where the fields of a batch's explanations come from, when they are asked for."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.explain.phrases import Picked, cut_phrases, pick_phrases
from textcapsules.explain.strengths import Strengths
from textcapsules.explain.types import ORPHAN, LabelExplanation, Phrase, TokenSpan
from textcapsules.text.vocabulary import Located, TextTokenizer

__all__ = ["BatchSource", "TextSource"]


@dataclass(frozen=True)
class BatchSource:
    """What was found for some texts together: B texts, J classes."""

    tokenizer: TextTokenizer
    names: tuple[str, ...]  # of the J classes
    found: Strengths
    chosen: NDArray[np.bool_]  # (B, J)
    n_tokens: NDArray[np.int64]  # (B,)
    top: int

    @cached_property
    def together(self) -> Picked:
        """The phrases of all n-gram sizes together."""
        return pick_phrases(self.found.ngrams, self.n_tokens, self.top)

    @cached_property
    def by_size(self) -> dict[int, Picked]:
        """The phrases of each n-gram size by itself."""
        if len(self.found.ngrams) == 1:
            return {self.found.ngrams[0].size: self.together}
        return {
            ngrams.size: pick_phrases([ngrams], self.n_tokens, self.top)
            for ngrams in self.found.ngrams
        }


class TextSource(NamedTuple):
    """One text of a batch; its methods are the later fields of an `Explanation`."""

    batch: BatchSource
    row: int
    text: str
    located: Located

    def tokens(self) -> tuple[TokenSpan, ...]:
        """Return the tokens that the model read."""
        return tuple(self.batch.tokenizer.pieces(self.text, self.located))

    def labels(self) -> tuple[LabelExplanation, ...]:
        """Return every class's explanation, themselves for later."""
        scores = self.batch.found.lengths[self.row].tolist()
        chosen = self.batch.chosen[self.row].tolist()
        return tuple(
            LabelExplanation.later(
                LabelSource(self, place),
                label=name,
                score=scores[place],
                predicted=chosen[place],
            )
            for place, name in enumerate(self.batch.names)
        )

    def orphan(self) -> LabelExplanation | None:
        """Return the orphan's explanation, if the model has one."""
        scores, place = self.batch.found.lengths[self.row], len(self.batch.names)
        if len(scores) == place:
            return None
        return LabelExplanation.later(
            LabelSource(self, place),
            label=ORPHAN,
            score=float(scores[place]),
            predicted=False,
        )


class LabelSource(NamedTuple):
    """One class of a text; its methods are later fields of a `LabelExplanation`."""

    text: TextSource
    place: int  # among the classes, the orphan last

    def phrases(self) -> tuple[Phrase, ...]:
        """Return the phrases of all n-gram sizes together."""
        return self.cut(self.text.batch.together)

    def by_size(self) -> dict[int, tuple[Phrase, ...]]:
        """Return the phrases of each n-gram size by itself."""
        picked = self.text.batch.by_size
        return {size: self.cut(own) for size, own in picked.items()}

    def cut(self, picked: Picked) -> tuple[Phrase, ...]:
        """Cut picked phrases of this text and class out of it."""
        _, row, text, located = self.text
        return cut_phrases(text, located.places, picked, row, self.place)

    def tokens(self) -> tuple[float, ...]:
        """Return one strength a token."""
        batch, row, _, located = self.text
        n_tokens = len(located.places)
        return tuple(batch.found.tokens[row, :n_tokens, self.place].tolist())
