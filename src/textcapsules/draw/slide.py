"""A highlighted text as a picture for a slide: wrapped lines, marks and a legend.

It shows what `pages.highlight` made, in the light colours, without a browser. Lines of
one text that overlap lie below each other as on a page.
"""

import io
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from textcapsules.draw.pages import Highlight, Mark, highlight
from textcapsules.draw.palette import LIGHT, TINTS
from textcapsules.draw.pictures import text_font
from textcapsules.reasons.explanation import Explanation, format_strength

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["draw_text"]

WIDTH, EDGE = 1600, 56  # pixels
TEXT, SMALL, TAG = 34, 26, 17  # sizes of letters, in pixels
LINE, LEGEND_LINE = 70, 42  # heights of lines, in pixels
UNDER = 44  # from the top of a line to the first mark under it
LANE = 7  # from one mark to the next below it
NAMES = 62  # from the beginning of a line of the legend to the label's name
LONGEST = 1500  # characters shown; the rest would not fit on a slide


class Word(NamedTuple):
    """A word, or the blanks between two, with its marks and the tags behind it."""

    text: str
    marks: tuple[Mark, ...]
    tags: tuple[Mark, ...]  # of labels whose claim ends here


def draw_text(explanation: Explanation, *, top: int = 5) -> bytes:
    """Return a PNG of a text with the `top` phrases of each label marked."""
    from PIL import Image, ImageDraw

    found = highlight(explanation, top=top, longest=LONGEST)
    lines = wrap(found)
    legend = legend_lines(found)
    height = 2 * EDGE + LINE * len(lines) + LEGEND_LINE * len(legend)
    height += LEGEND_LINE // 2 if legend else 0
    image = Image.new("RGB", (WIDTH, height), LIGHT.paper)
    pen = ImageDraw.Draw(image)
    y = EDGE
    for line in lines:
        draw_line(pen, line, y)
        y += LINE
    y += LEGEND_LINE // 2
    for parts in legend:
        x: float = EDGE
        for number, (text, colour, bold) in enumerate(parts):
            font = text_font(SMALL, bold=bold)
            pen.text((x, y), text, fill=colour, font=font)
            x += max(font.getlength(text), NAMES if number == 0 < len(parts) - 1 else 0)
        y += LEGEND_LINE
    buffer = io.BytesIO()
    image.save(buffer, format="png")
    return buffer.getvalue()


def wrap(found: Highlight) -> list[list[Word]]:
    """Break the text into lines that fit."""
    room, x = WIDTH - 2 * EDGE, 0.0
    lines: list[list[Word]] = [[]]
    for word in words_of(found):
        wide = width(word)
        is_break = "\n" in word.text
        if is_break or (x + wide > room and not word.text.isspace() and lines[-1]):
            lines.append([])
            x = 0.0
        if is_break or (not lines[-1] and word.text.isspace()):
            continue  # no line begins with a blank
        lines[-1].append(word)
        x += wide
    return [line for line in lines if line] or [[]]


def words_of(found: Highlight) -> list[Word]:
    """Cut the stretches into words and blanks, and words that fit on no line."""
    longest = (WIDTH - 2 * EDGE) // TEXT  # no letter is wider than its height
    words = []
    for stretch in found.stretches:
        ends = tuple(mark for mark in stretch.marks if mark.ends)
        parts = []
        for is_blank, letters in groupby(stretch.text, str.isspace):
            whole = "".join(letters)
            text = ("\n" if "\n" in whole else " ") if is_blank else printable(whole)
            if is_blank:
                parts.append(text)
            else:
                parts += [
                    text[at : at + longest] for at in range(0, len(text), longest)
                ]
        for number, part in enumerate(parts, start=1):
            is_last = number == len(parts)
            words.append(Word(part, stretch.marks, ends if is_last else ()))
    return words


def printable(text: str) -> str:
    """Replace signs that no font can draw, such as halves of characters."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def width(word: Word) -> float:
    """Return the width of a word with its tags."""
    if word.text == "\n":
        return 0.0
    tags = sum(tag_width(mark) for mark in word.tags)
    return text_font(TEXT).getlength(word.text) + tags


def tag_width(mark: Mark) -> float:
    """Return the width of a label's tag behind its phrase."""
    return text_font(TAG, bold=True).getlength(mark.tag) + 8


def draw_line(pen: "ImageDraw", line: list[Word], y: int) -> None:
    """Draw one line: tints, lines under the phrases, words and tags."""
    x: float = EDGE
    for word in line:
        font = text_font(TEXT)
        wide = font.getlength(word.text)
        if word.marks:
            strongest = word.marks[0]
            tint = mixed(LIGHT.labels[strongest.colour], TINTS[strongest.level - 1])
            pen.rectangle((x, y - 3, x + wide, y + UNDER - 3), fill=tint)
        for mark in word.marks:
            draw_rule(pen, mark, x, x + wide, y + UNDER + LANE * mark.lane)
        pen.text((x, y), word.text, fill=LIGHT.ink, font=font)
        x += wide
        for mark in word.tags:
            colour = LIGHT.labels[mark.colour]
            place: Any = (x + 4, y - 4)
            pen.text(place, mark.tag, fill=colour, font=text_font(TAG, bold=True))
            x += tag_width(mark)


def draw_rule(pen: "ImageDraw", mark: Mark, start: float, end: float, y: float) -> None:
    """Draw the line of a label under a stretch: solid, dashed or dotted."""
    colour = LIGHT.labels[mark.colour]
    step, filled = {"solid": (0, 0), "dashed": (16, 10), "dotted": (8, 4)}[mark.line]
    if not step:
        pen.rectangle((start, y, end, y + 3), fill=colour)
        return
    x = start - start % step  # dashes go on from one word to the next
    while x < end:
        left, right = max(x, start), min(x + filled, end)
        if left < right:
            pen.rectangle((left, y, right, y + 3), fill=colour)
        x += step


def mixed(colour: str, share: int) -> tuple[int, int, int]:
    """Return a percentage of a colour mixed into the paper.

    >>> mixed("#000000", 25)
    (191, 191, 191)
    """
    parts = [
        (
            int(colour[at : at + 2], 16) * share
            + int(LIGHT.paper[at : at + 2], 16) * (100 - share)
        )
        // 100
        for at in (1, 3, 5)
    ]
    red, green, blue = parts
    return red, green, blue


Part = tuple[str, str, bool]  # text, colour, bold


def legend_lines(found: Highlight) -> list[list[Part]]:
    """Return one line per label: its tag, name, score and phrases, as they fit."""
    lines: list[list[Part]] = []
    for label in found.labels:
        colour = LIGHT.labels[label.colour]
        parts: list[Part] = [
            (f"{label.tag}  ", colour, True),
            (f"{printable(label.label)} ", LIGHT.ink, True),
            (f"{label.score:.2f}  ", LIGHT.soft, False),
        ]
        if label.verdict:
            kind = LIGHT.right if label.verdict == "right" else LIGHT.wrong
            parts.append((f"{label.verdict}  ", kind, False))
        for phrase in label.phrases:
            text = " ".join(printable(word) for word in phrase.text.split())
            said: Part = (
                f"“{text}” {format_strength(phrase.strength)}  ",
                LIGHT.soft,
                False,
            )
            if line_width([*parts, said]) > WIDTH - 2 * EDGE:
                break
            parts.append(said)
        lines.append(parts)
    none = ": outside the training topics." if found.outside else "."
    return lines or [[(f"No label{none}", LIGHT.soft, False)]]


def line_width(parts: list[Part]) -> float:
    """Return the width of a line of the legend."""
    return sum(text_font(SMALL, bold=bold).getlength(text) for text, _, bold in parts)
