"""Words that hold a sentence together and say nothing about its topic.

English function words, a closed class: articles, pronouns, prepositions, conjunctions,
auxiliaries and a few adverbs. Words of negation are not among them, because they turn
a phrase into its opposite, nor are words that ask ("who", "how many"). In other
languages nothing is taken for a function word but signs without a letter or digit.
"""

__all__ = [
    "ASKING",
    "LINKS",
    "OF_VERBS",
    "ends_phrase",
    "is_function_word",
    "is_negation",
    "trim_phrase",
]

FUNCTION_WORDS = frozenset(
    """
    a about above across after again against all almost along already also although
    always am among an and another any anybody anyone anything are around as at away be
    because been before behind being below beside besides between both but by can come
    comes could did do does doing done down during each either else even ever every
    everybody everyone everything few for from further get gets getting go goes going
    got had has have having he her here hers herself him himself his however i if in
    instead into is it its itself just let like may maybe me might mine more most must
    my myself of off often on once one ones only onto or other others ought our ours
    ourselves out over own per perhaps quite rather really same several shall she should
    since so some somebody someone something still such than that the their theirs them
    themselves then there these they this those though through thus till to together too
    toward towards under until up upon us very via was we were whatever whenever
    wherever whether which while whoever whole will with within would yet you your yours
    yourself yourselves 's 're 've 'm 'd 'll s t re ve m d ll
    """.split()  # noqa: SIM905 (a page to read, not a list)
)
ASKING = {"how", "many", "much", "what", "when", "where", "who", "whom", "whose", "why"}
PARTICLES = {"again", "all", "away", "down", "off", "out", "over", "together", "up"}
# Prepositions that may belong to the verb before them: "log in", but "paid in June".
OF_VERBS = {"down", "in", "off", "on", "out", "over", "up"}
# They link what follows to what stands before.
LINKS = frozenset(
    """
    after although and as because before but if nor of once or since so than that then
    though till to unless until whereas whether which while yet
    """.split()  # noqa: SIM905
)
# Pronouns that end a phrase: "lets me in" is no better than "lets me".
OBJECTS = {"her", "him", "it", "me", "them", "us", "you", "mine", "yours", "ours"}
DETERMINERS = frozenset(
    """
    a all an another any both each either every her his its my one our own several some
    such that the their these this those your
    """.split()  # noqa: SIM905
)
NEGATIONS = frozenset(
    """
    no not never nor neither none nobody nothing nowhere without hardly barely cannot
    cant dont doesnt didnt wont isnt arent wasnt n't
    """.split()  # noqa: SIM905
)
SIGNS = '.,;:!?"“”‘’()[]«»…- '  # at the ends of words


def is_function_word(word: str) -> bool:
    """Tell whether a word says nothing about a topic.

    >>> [is_function_word(word) for word in ("The", "?", "not", "refund")]
    [True, True, False, False]
    """
    return word.casefold() in FUNCTION_WORDS or not any(map(str.isalnum, word))


def trim_phrase(phrase: str) -> str:
    """Return a phrase without the function words and signs at its ends.

    Words such as "up" and "over" stay at the end, where they belong to a verb; words
    that ask stay at the beginning.

    >>> trim_phrase(", and the screen of my phone is"), trim_phrase("of the")
    ('screen of my phone', '')
    >>> trim_phrase("we are giving up"), trim_phrase("how far is it when")
    ('giving up', 'how far')
    """
    words = phrase.split()
    while words and is_function_word(bare(words[0])):
        words.pop(0)
    while words and ends_nothing(bare(words[-1])):
        words.pop()
    if not words:
        return ""
    words[0], words[-1] = words[0].lstrip(SIGNS), words[-1].rstrip(SIGNS)
    return " ".join(words)


def ends_nothing(word: str) -> bool:
    """Tell whether a word at the end of a phrase leaves it unfinished."""
    folded = word.casefold()
    return folded in ASKING or (is_function_word(word) and folded not in PARTICLES)


def ends_phrase(word: str, follower: str) -> bool:
    """Tell whether a word can end a phrase, however strong it is.

    Args:
        word: the last one.
        follower: the word or sign after it, empty at the end of a text.

    >>> ends_phrase("for", "my"), ends_phrase("in", "june"), ends_phrase("in", "since")
    (False, False, True)
    """
    folded = word.casefold()
    if folded in OF_VERBS:
        return is_function_word(follower) and follower.casefold() not in DETERMINERS
    return folded in OBJECTS or not ends_nothing(word)


def is_negation(word: str) -> bool:
    """Tell whether a word turns what follows it into its opposite.

    >>> [is_negation(word) for word in ("not", "isn't", "note")]
    [True, True, False]
    """
    folded = word.casefold()
    return folded in NEGATIONS or folded.endswith(("n't", "n’t"))


def bare(word: str) -> str:
    """Return a word without the signs at its ends."""
    return word.strip(SIGNS)
