import pytest

from textcapsules.text.function_words import is_function_word, trim_phrase


@pytest.mark.parametrize("word", ["the", "The", "?", "…", "of", "'s", ""])
def test_words_without_a_topic(word: str) -> None:
    assert is_function_word(word)


@pytest.mark.parametrize("word", ["not", "no", "never", "who", "card", "404", "退款"])
def test_words_that_say_something(word: str) -> None:
    assert not is_function_word(word)


@pytest.mark.parametrize(
    ("phrase", "kept"),
    [
        ("the screen of my phone is", "screen of my phone"),
        (", we are giving up.", "giving up"),
        ("not working", "not working"),
        ("who invented the", "who invented"),
        ("is it", ""),
        ("", ""),
        ("error 404 when", "error 404"),
        ("bitte um Rückgabe", "bitte um Rückgabe"),
    ],
)
def test_ends_are_trimmed_and_the_sense_is_kept(phrase: str, kept: str) -> None:
    assert trim_phrase(phrase) == kept
