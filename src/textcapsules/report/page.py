"""A report as one self-contained page: what was found in, HTML out."""

from collections.abc import Sequence
from dataclasses import dataclass

from textcapsules.explain.render import Cells, Figure, Picture, colophon, render
from textcapsules.report.findings import Report, ReportTable
from textcapsules.report.reasons import Reasons, give_reasons
from textcapsules.report.results import (
    about_table,
    confusion_cells,
    headline,
    mix_up_table,
    result_tables,
    training_curves,
    training_table,
)

__all__ = ["render_report"]


@dataclass(frozen=True, slots=True)
class ReportPage:
    """What the template shows; None and empty lists are left out."""

    title: str
    lead: str
    figures: Sequence[Figure]
    tables: Sequence[ReportTable]
    confusion: Cells | None
    mix_ups: ReportTable | None
    training: ReportTable | None
    curves: Sequence[Picture]
    reasons: Reasons | None
    about: ReportTable
    colophon: str


def render_report(report: Report) -> str:
    """Return the page; it needs no network and no script."""
    record = report.classifier.record
    epochs = record.get("epochs", [])
    page = ReportPage(
        title=report.title,
        lead=report.lead,
        figures=headline(report.evaluation, len(report.classifier.labels.names)),
        tables=[*report.tables, *result_tables(report)],
        confusion=confusion_cells(report),
        mix_ups=mix_up_table(report.mix_ups),
        training=training_table(record) if epochs else None,
        curves=training_curves(epochs) if epochs else [],
        reasons=None if report.explained is None else give_reasons(report.explained),
        about=about_table(report),
        colophon=colophon(),
    )
    return render("report.html.j2", page=page)
