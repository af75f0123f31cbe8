"""The generator of synthetic support-desk tickets.

A ticket has one topic, or several in the multi-label test set. Beside the sentences
that speak for its topics it has sentences that speak for none, and often an aside: a
mention of another topic that is fine, settled or not meant ("the payment went through
fine, but ..."). Single words are therefore misleading; what is said about them decides.

The sentences come from phrase banks: one TOML file per topic, and `background.toml` for
sentences without a topic. Every file has a part `seen`, for all splits, and a part
`unseen`, which training never uses: a third of it is for dev, the rest for the test
sets, so that a model chosen on dev has not seen the test's wording either. A template
is a sentence with `{filler}` slots, `{this|that}` choices, `#` for a digit, and `[...]`
around the words that speak for the topic.

`Dice` uses nothing but `random.Random.random`, the one method whose sequence Python
promises to keep across versions: the tickets must never change.
"""

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "Bank",
    "Dice",
    "Hand",
    "Span",
    "Ticket",
    "draw_hand",
    "draw_tickets",
    "read_banks",
    "roughen",
]

Lists = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Bank:
    """The part of a file that one split may use: templates by kind, fillers by slot."""

    name: str
    weight: int  # how frequent the topic is, relative to the others
    templates: Lists
    fillers: Lists


@cache
def read_banks(part: str) -> tuple[Bank, tuple[Bank, ...]]:
    """Return the background and the topics, by name, as `part` may use them.

    Args:
        part: "train", "dev" or "test".
    """
    folder = resources.files("textcapsules.data.tickets") / "phrases"
    files = {
        entry.name: tomllib.loads(entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }
    background = _bank(files.pop("background.toml"), {}, part)
    topics = [_bank(values, background.fillers, part) for values in files.values()]
    return background, tuple(sorted(topics, key=lambda bank: bank.name))


def _bank(values: Mapping[str, Any], common: Lists, part: str) -> Bank:
    """Build a bank from a file's values; all topics share the fillers `common`."""
    seen, unseen = dict(values["seen"]), dict(values["unseen"])
    fillers = _merge(seen.pop("fillers", {}), unseen.pop("fillers", {}), part)
    return Bank(
        name=values.get("name", "background"),
        weight=values.get("weight", 0),
        templates=_merge(seen, unseen, part),
        fillers={**common, **fillers},
    )


def _merge(
    seen: Mapping[str, Sequence[str]], unseen: Mapping[str, Sequence[str]], part: str
) -> Lists:
    """Add to the seen entries of each kind the unseen ones that `part` may use."""
    return {kind: (*seen[kind], *_allowed(unseen[kind], part)) for kind in seen}


def _allowed(unseen: Sequence[str], part: str) -> list[str]:
    """Return the unseen entries that a split may use, repeated to be drawn often.

    Dev has half as many as the tests and repeats them twice as often, so that both are
    about equally hard, and what is tuned on dev is right for the tests.
    """
    if part == "train":
        return []
    if part == "dev":
        return [entry for i, entry in enumerate(unseen) if i % 3 == 0 for _ in range(4)]
    return [entry for i, entry in enumerate(unseen) if i % 3 for _ in range(2)]


T = TypeVar("T")
# Only long words have typing errors: short ones would become other words.
LONG_WORD = re.compile(r"[A-Za-z]{4,}")


class Dice:
    """Seeded draws that are the same on every platform and Python version."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """Return a whole number from 0 to n - 1."""
        return int(self._random() * n)

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self._random() < probability

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values, all equally likely."""
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return the values in a random order."""
        rest = list(values)
        return [rest.pop(self.below(len(rest))) for _ in values]


@dataclass(frozen=True)
class Hand:
    """How one customer types."""

    typo_rate: float  # probability that a long word is mistyped
    lower: bool  # never uses the shift key
    apostrophes: bool  # can't, not cant


def draw_hand(dice: Dice) -> Hand:
    """Draw a customer: most type cleanly, some carelessly, a few very carelessly."""
    return Hand(
        typo_rate=dice.pick((0.0, 0.0, 0.0, 0.0, 0.02, 0.02, 0.02, 0.05, 0.05, 0.12)),
        lower=dice.chance(0.1),
        apostrophes=not dice.chance(0.2),
    )


def roughen(text: str, hand: Hand, dice: Dice) -> str:
    """Return `text` as this customer types it."""
    if not hand.apostrophes:
        text = text.replace("'", "")
    if hand.lower:
        text = text.lower()

    def slip(match: re.Match[str]) -> str:
        word = match[0]
        return _mistype(word, dice) if dice.chance(hand.typo_rate) else word

    return LONG_WORD.sub(slip, text) if hand.typo_rate else text


def _mistype(word: str, dice: Dice) -> str:
    """Swap two letters, drop one or double one; the first letter stays."""
    at = 1 + dice.below(len(word) - 2)
    kind = dice.below(3)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    return word[:at] + word[at] + word[at:]


SHORT = 0.06  # share of single-topic tickets that are only an exclamation
# Slots that have the same filler throughout a ticket: what a customer owns and uses.
STEADY = ("app", "computer", "device", "gadget", "plan")
INNER_SLOT = re.compile(r"\{([^{}]*)\}")
EVIDENCE = re.compile(r"(\[[^\]]*\])")


class Span(NamedTuple):
    """`text[start:end]` of a ticket speaks for `topic`."""

    start: int
    end: int
    topic: str


class Ticket(NamedTuple):
    """A text, its topics, and the evidence for them that is planted in it.

    The words marked in a template are evidence by themselves. The rest of the sentence
    is written for the topic too, and occurs in no other topic's tickets.
    """

    text: str
    topics: tuple[str, ...]
    spans: tuple[Span, ...]  # the marked words
    sentences: tuple[Span, ...]  # whole sentences, without their lead


class Piece(NamedTuple):
    """A stretch of a sentence, and the topic it speaks for, if any."""

    text: str
    topic: str | None = None


class Sentence(NamedTuple):
    """The pieces of a sentence and its part in the ticket."""

    pieces: tuple[Piece, ...]
    role: str  # "phrase", "aside", "context", "grumble", "greeting", "closing"
    topic: str | None = None
    lead: str = ""  # words before it that are no evidence: "Also, "

    def takes_clause(self) -> bool:
        """Return whether "..., but" may come before: at most once in a sentence."""
        return self.role == "phrase" and not any(
            ", but " in piece.text for piece in self.pieces
        )

    def after(self, lead: str) -> "Sentence":
        """Return the sentence with `lead` in front, its first letter in lower case."""
        first = self.pieces[0]
        keep = re.match(r"I\b", first.text)
        text = first.text if keep else first.text[:1].lower() + first.text[1:]
        pieces = (first._replace(text=text), *self.pieces[1:])
        return self._replace(pieces=pieces, lead=lead)


def draw_tickets(part: str, dice: Dice, *, multi: bool = False) -> Iterator[Ticket]:
    """Yield an endless sequence of tickets.

    Args:
        part: "train", "dev" or "test": which phrases may be used.
        dice: The source of all random draws.
        multi: Two or three topics per ticket instead of one.
    """
    background, topics = read_banks(part)
    writer = Writer(background, topics, dice)
    # Topics are dealt like cards, so that each has exactly its share.
    deck = [bank for bank in topics for _ in range(bank.weight)]
    hand: list[Bank] = []
    while True:
        wanted = 1 if not multi else 2 if dice.chance(0.7) else 3
        chosen: list[Bank] = []
        while len(chosen) < wanted:
            hand = hand or dice.shuffled(deck)
            bank = hand.pop()
            if bank not in chosen:
                chosen.append(bank)
        yield writer.write(chosen)


class Writer:
    """Writes tickets about given topics."""

    def __init__(self, background: Bank, topics: tuple[Bank, ...], dice: Dice) -> None:
        self.background = background
        self.topics = topics
        self.dice = dice
        self.steady: dict[str, str] = {}

    def write(self, topics: list[Bank]) -> Ticket:
        """Return a ticket about these topics."""
        dice = self.dice
        self.steady = {}
        if len(topics) == 1 and dice.chance(SHORT):
            template = self.template(topics[0], "short")
            sentences = [self.sentence(template, topics[0], "phrase", small=True)]
        else:
            body = dice.shuffled([*self.phrases(topics), *self.remarks()])
            body = self.with_asides(self.grumbling_late(body), topics)
            sentences = self.framed(self.linked(body))
        return self.typed(sentences, topics)

    def phrases(self, topics: list[Bank]) -> list[Sentence]:
        """Draw the sentences that speak for the topics, no template twice."""
        several = len(topics) > 1
        counts = (1, 1, 2, 2) if several else (1, 1, 1, 2, 2, 2, 3)
        drawn = []
        for bank in topics:
            wanted = self.dice.pick(counts)
            templates: list[str] = []
            while len(templates) < wanted:
                template = self.template(bank, "phrases")
                if template not in templates:
                    templates.append(template)
            drawn += [self.sentence(text, bank, "phrase") for text in templates]
        return drawn

    def remarks(self) -> list[Sentence]:
        """Draw sentences that could be in any ticket."""
        kinds = [("context", "context")] * self.dice.pick((0, 0, 1, 1, 1, 2))
        kinds += [("grumbles", "grumble")] * self.dice.pick((0, 0, 1, 1, 2))
        templates: list[tuple[str, str]] = []
        for kind, role in kinds:
            entry = (self.template(self.background, kind), role)
            if entry not in templates:
                templates.append(entry)
        return [self.sentence(text, self.background, role) for text, role in templates]

    def grumbling_late(self, body: list[Sentence]) -> list[Sentence]:
        """Move grumbles behind the first phrase, which "this" and "it" then mean."""
        first = [sentence.role for sentence in body].index("phrase")
        early = [s for s in body[:first] if s.role == "grumble"]
        calm = [s for s in body[:first] if s.role != "grumble"]
        return [*calm, *body[first:], *early]

    def with_asides(self, body: list[Sentence], topics: list[Bank]) -> list[Sentence]:
        """Mention other topics in passing, alone or as a phrase's first clause."""
        others = [bank for bank in self.topics if bank not in topics]
        for _ in range(self.dice.pick((0, 0, 0, 1, 1, 1, 1, 2))):
            bank = self.dice.pick(others)
            clause = self.expand(self.aside(bank), bank)
            free = [i for i, sentence in enumerate(body) if sentence.takes_clause()]
            clause = clause[:1].upper() + clause[1:]
            if free and self.dice.chance(0.5):
                place = self.dice.pick(free)
                joined = body[place].after(f"{clause}, but ")
                body[place] = joined._replace(role="joined")
            else:
                alone = Sentence((Piece(f"{clause}."),), "aside")
                body.insert(self.dice.below(len(body) + 1), alone)
        return body

    def aside(self, bank: Bank) -> str:
        """Draw a clause that names a topic without raising it."""
        if self.dice.chance(0.5):
            return self.template(bank, "asides")
        kind = self.dice.pick(("thing", "issue"))
        frame = self.template(self.background, f"{kind}_frames")
        return frame.replace(f"{{{kind}}}", self.template(bank, f"{kind}s"))

    def linked(self, body: list[Sentence]) -> list[Sentence]:
        """Put "also" and the like before some of the later phrases."""
        linked: list[Sentence] = []
        previous = None
        for sentence in body:
            if sentence.role == "phrase" and previous and self.dice.chance(0.4):
                kind = "links" if previous == sentence.topic else "turns"
                sentence = sentence.after(self.template(self.background, kind))
            previous = sentence.topic or previous
            linked.append(sentence)
        return linked

    def framed(self, body: list[Sentence]) -> list[Sentence]:
        """Add a greeting and a closing to some."""
        if self.dice.chance(0.45):
            template = self.template(self.background, "greetings")
            body = [self.sentence(template, self.background, "greeting"), *body]
        if self.dice.chance(0.45):
            template = self.template(self.background, "closings")
            body = [*body, self.sentence(template, self.background, "closing")]
        return body

    def template(self, bank: Bank, kind: str) -> str:
        """Draw a template of a kind."""
        return self.dice.pick(bank.templates[kind])

    def expand(self, template: str, bank: Bank) -> str:
        """Fill slots and choices, innermost first, then the digits."""

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            if "|" in name:
                return self.dice.pick(name.split("|"))
            if name not in self.steady:
                filler = self.dice.pick(bank.fillers[name])
                if name not in STEADY:
                    return filler
                self.steady[name] = filler
            return self.steady[name]

        while INNER_SLOT.search(template):
            template = INNER_SLOT.sub(fill, template)
        digits = re.sub("#", lambda _: str(1 + self.dice.below(9)), template)
        return re.sub(" +", " ", digits)

    def sentence(
        self, template: str, bank: Bank, role: str, *, small: bool = False
    ) -> Sentence:
        """Expand a template and cut it at the marks of its evidence."""
        pieces = []
        for part in EVIDENCE.split(self.expand(template, bank)):
            marked = part.startswith("[")
            if part:
                pieces.append(Piece(part.strip("[]"), bank.name if marked else None))
        if not small:
            first = pieces[0].text
            pieces[0] = pieces[0]._replace(text=first[:1].upper() + first[1:])
        topic = bank.name if role == "phrase" else None
        return Sentence(tuple(pieces), role, topic)

    def typed(self, sentences: list[Sentence], topics: list[Bank]) -> Ticket:
        """Type the sentences with one customer's slips, noting where evidence falls."""
        hand = draw_hand(self.dice)
        text = ""
        spans, planted = [], []
        for sentence in sentences:
            text += " " if text else ""
            text += roughen(sentence.lead, hand, self.dice)
            begin = len(text)
            for piece in sentence.pieces:
                start = len(text)
                text += roughen(piece.text, hand, self.dice)
                if piece.topic:
                    spans.append(Span(start, len(text), piece.topic))
            if sentence.topic:
                planted.append(Span(begin, len(text), sentence.topic))
        names = tuple(sorted(bank.name for bank in topics))
        return Ticket(text, names, tuple(spans), tuple(planted))
