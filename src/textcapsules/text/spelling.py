"""Read an unknown word as the known word that it misspells.

Two words are near if one letter inside a word, neither the first nor the last, is left
out, added or replaced, or swapped with the next. Typists rarely get the first letter
wrong, and another last letter is mostly another form of a word: without this rule, more
unknown words become known that mean something else, and the model gets worse
(reproduction/FINDINGS.md). Only words of at least `SHORTEST` letters of one script take
part: short words have too many neighbours, and numbers and codes mean what they say. Of
several near words the most frequent is taken, which has the lowest row.

Candidates come from an index of the known words with one letter left out, as in Garbe's
SymSpell: looking up a word of n letters takes about 3n steps, however many are known.
"""

import unicodedata
from collections.abc import Iterator, Sequence

__all__ = ["SHORTEST", "Speller", "can_be_misspelt"]

SHORTEST = 5  # letters
MOST_WORDS = 50_000  # the most frequent; others are rarely meant
MAX_REMEMBERED = 100_000  # unknown words whose answer is kept


class Speller:
    """Finds the known word that an unknown one misspells.

    >>> Speller(["[PAD]", "[UNK]", "invoice", "refund"], first_word=2).row("invocie")
    2
    """

    def __init__(self, words: Sequence[str], *, first_word: int) -> None:
        """Index words by row; those before `first_word` are no real words."""
        self.rows: dict[str, int] = {}  # of the words that may be meant
        # A word without one letter: row of the word, place of the letter.
        self.shortened: dict[str, list[tuple[int, int]]] = {}
        self.remembered: dict[str, int | None] = {}
        for row in range(first_word, min(len(words), first_word + MOST_WORDS)):
            word = words[row]
            if can_be_misspelt(word):
                self.rows[word] = row
                for place, rest in without_one(word):
                    self.shortened.setdefault(rest, []).append((row, place))

    def row(self, word: str) -> int | None:
        """Return the row of the word that is probably meant; None if there is none."""
        if word not in self.remembered:
            if len(self.remembered) >= MAX_REMEMBERED:
                self.remembered.clear()
            near = self.near(word) if can_be_misspelt(word) else ()
            self.remembered[word] = min(near, default=None)
        return self.remembered[word]

    def near(self, word: str) -> Iterator[int]:
        """Yield the rows of the known words that are near a word."""
        for row, _ in self.shortened.get(word, ()):  # a letter is missing
            yield row
        for place, rest in without_one(word):
            if rest in self.rows:  # a letter too many
                yield self.rows[rest]
            for row, other in self.shortened.get(rest, ()):
                if other == place:  # another letter in its place
                    yield row
        for place in range(1, len(word) - 1):
            first, second = word[place], word[place + 1]
            swapped = f"{word[:place]}{second}{first}{word[place + 2 :]}"
            if first != second and swapped in self.rows:
                yield self.rows[swapped]


def without_one(word: str) -> Iterator[tuple[int, str]]:
    """Yield a word without each of its inner letters in turn.

    >>> list(without_one("tray"))
    [(1, 'tay'), (2, 'try')]
    """
    for place in range(1, len(word) - 1):
        yield place, word[:place] + word[place + 1 :]


def can_be_misspelt(word: str) -> bool:
    """Tell whether a word is long enough, and of letters of one alphabet.

    >>> [can_be_misspelt(each) for each in ("refund", "plan", "abc123", "возврат")]
    [True, False, False, True]
    """
    if len(word) < SHORTEST or not word.replace("'", "").isalpha():
        return False
    if word.isascii():
        return True
    return len({script(letter) for letter in word if letter != "'"}) == 1


def script(letter: str) -> str:
    """Return the script of a letter, as its Unicode name begins.

    >>> script("é"), script("ж")
    ('LATIN', 'CYRILLIC')
    """
    return unicodedata.name(letter, "").split(" ")[0]
