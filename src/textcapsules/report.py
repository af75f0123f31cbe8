"""A report as one self-contained page: data in, HTML out, everything escaped."""

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["ReportTable", "ShownText", "render_report"]


class ReportTable(NamedTuple):
    """A table of the report; the first column names the rows."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


class ShownText(NamedTuple):
    """A text with its predicted and its true labels."""

    text: str
    predicted: Sequence[str]
    true: Sequence[str]


def render_report(
    *,
    title: str,
    summary: str,
    tables: Sequence[ReportTable],
    confusion_png: bytes | None = None,
    examples: Sequence[ShownText] = (),
) -> str:
    """Return the page; it needs no network and no script."""
    from base64 import b64encode

    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("textcapsules"), autoescape=True, undefined=StrictUndefined
    )
    picture = None if confusion_png is None else b64encode(confusion_png).decode()
    return environment.get_template("report.html.j2").render(
        title=title,
        summary=summary,
        tables=tables,
        confusion=picture,
        examples=examples,
    )
