"""What a browser and a screen reader would make of a page, without either."""

import re
from html.parser import HTMLParser
from itertools import pairwise

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
    """A page's elements and texts; fails where tags do not match."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[int] = []  # places in `elements`
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[list[str]] = []  # of each element, those inside it
        self.declared: str | None = None
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_decl(self, decl: str) -> None:
        self.declared = decl

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.append([])
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self.open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for place in self.open:
            self.texts[place].append(data)

    def names(self) -> list[str]:
        """Return every tag, in order."""
        return [tag for tag, _ in self.elements]

    def all(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def inside(self, tag: str, style: str | None = None) -> list[str]:
        """Return the text of every element of a kind, and class if one is given."""
        return [
            "".join(texts)
            for (name, attributes), texts in zip(self.elements, self.texts, strict=True)
            if name == tag and style in (None, *attributes.get("class", "").split())
        ]


def check_page(source: str) -> Page:
    """Fail unless a page is whole, self-contained and fit for a screen reader."""
    page = Page(source)
    assert (page.declared or "").lower() == "doctype html"
    assert page.all("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in page.all("meta")
    assert any("width=device-width" in m.get("content", "") for m in page.all("meta"))
    for once in ("title", "body", "header", "main", "footer", "h1"):
        assert page.names().count(once) == 1, once
    check_structure(page)
    check_origin(source, page)
    return page


def check_structure(page: Page) -> None:
    """Headings in order, names that exist once, words for pictures, table headers."""
    levels = [int(tag[1]) for tag in page.names() if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(set(ids)) == len(ids)
    for _, attributes in page.elements:
        assert attributes.get("aria-labelledby", ids[0]) in ids
        if attributes.get("role") == "region":  # what scrolls can be reached by keys
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"].strip()
    assert all(a["href"][0] == "#" and a["href"][1:] in ids for a in page.all("a"))
    assert all(image["alt"].strip() for image in page.all("img"))
    assert all(header.get("scope") in ("col", "row") for header in page.all("th"))


def check_origin(source: str, page: Page) -> None:
    """Nothing is loaded from elsewhere, and nothing runs."""
    own = re.sub(r"base64,[A-Za-z0-9+/=]+", "", source)
    for foreign in ("http:", "https:", "url(", "@import"):
        assert foreign not in own, foreign
    assert not {"script", "link", "iframe", "object", "form"} & set(page.names())
    for _, attributes in page.elements:
        if "src" in attributes:
            assert attributes["src"].startswith("data:image/svg+xml;base64,")
        assert not [name for name in attributes if name.startswith("on")]
