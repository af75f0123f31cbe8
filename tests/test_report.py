"""The report: whole, escaped, and without anything from elsewhere."""

import re
from base64 import b64encode
from html.parser import HTMLParser

import pytest

from textcapsules.report import ReportTable, ShownText, render_report

VOID = {"meta", "img", "br", "hr", "link", "input"}
NASTY = [
    "<script>alert(1)</script>",
    "</title></style></table><b>",
    "\"double\" and 'single' & amp",
    "{{ 7 * 7 }} {% raw %}",
    "right to left \u202eleft to right\u202c \u200fשלום",
    "emoji 👩‍🚀🎉 and 退款",
]


class Page(HTMLParser):
    """What a browser would make of the page; fails where tags do not match."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []  # innermost tag, text
        self.declared: str | None = None
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_decl(self, decl: str) -> None:
        self.declared = decl

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def within(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]

    def names(self) -> list[str]:
        return [tag for tag, _ in self.tags]


def report(text: str = "words", picture: bytes | None = b"\x89PNG") -> str:
    return render_report(
        title=text,
        summary=text,
        tables=[
            ReportTable(text, ("system", text), [(text, 1), ("second", 2)], text),
            ReportTable("Another", ("a",), []),
        ],
        confusion_png=picture,
        examples=[ShownText(text, [text, "x"], [text, "y"]), ShownText("t", [], ["z"])],
    )


def test_page_is_whole_and_well_formed() -> None:
    page = Page(report())
    assert (page.declared or "").lower() == "doctype html"
    assert page.names()[:2] == ["html", "head"]
    assert ("meta", {"charset": "utf-8"}) in page.tags
    assert ("html", {"lang": "en"}) in page.tags
    for once in ("title", "body", "h1", "img"):
        assert page.names().count(once) == 1, once


def test_tables_have_their_headers_rows_and_notes() -> None:
    page = Page(report("words"))
    assert page.names().count("table") == 2
    assert page.within("th") == ["system", "words", "a"]
    assert page.within("td") == ["words", "1", "second", "2"]
    assert page.within("h2") == ["words", "Another", "Confusion", "Some texts"]
    assert page.within("p") == ["words", "words"]  # the summary, the one note


def test_examples_show_text_predicted_and_true_labels() -> None:
    page = Page(report("words"))
    assert page.names().count("blockquote") == 2
    assert page.within("b") == ["words, x", "no label"]
    assert any("true: words, y" in text for text in page.within("footer"))
    assert any("true: z" in text for text in page.within("footer"))


@pytest.mark.parametrize("text", NASTY)
def test_any_text_is_shown_as_itself(text: str) -> None:
    page, plain = Page(report(text)), Page(report())
    assert page.names() == plain.names()  # nothing became markup
    assert page.within("title") == page.within("h1") == [text]
    assert page.within("td")[0] == text
    assert page.within("th")[1] == text
    assert page.within("p") == [text, text]
    assert page.within("h2")[0] == text
    assert page.within("b")[0] == f"{text}, x"
    assert "".join(page.within("blockquote")).strip().startswith(text)
    assert any(f"true: {text}, y" in shown for shown in page.within("footer"))


def test_markup_cannot_come_in_through_labels() -> None:
    page = report("<script>alert(1)</script>")
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 9


def test_page_needs_nothing_from_elsewhere() -> None:
    page = report(picture=bytes(range(256)) * 40)
    without_picture = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert "http" not in without_picture
    assert "//" not in without_picture
    assert "url(" not in without_picture
    assert "@import" not in without_picture
    seen = Page(page)
    assert not {"script", "link", "iframe", "object"} & set(seen.names())
    for _, attributes in seen.tags:
        assert "href" not in attributes
        assert attributes.get("src", "data:").startswith("data:")
        assert not [name for name in attributes if name.startswith("on")]


def test_picture_is_inside_the_page_with_words_for_those_who_cannot_see_it() -> None:
    picture = b"\x89PNG" + bytes(range(256))
    (image,) = [a for tag, a in Page(report(picture=picture)).tags if tag == "img"]
    assert image["src"] == "data:image/png;base64," + b64encode(picture).decode()
    assert "true class down" in image["alt"]


def test_parts_not_given_are_left_out() -> None:
    page = Page(render_report(title="t", summary="s", tables=[]))
    for absent in ("table", "img", "blockquote", "h2"):
        assert absent not in page.names()
