"""Review over HTTP: the next text, a decision, and thresholds from all decisions.

Every decision is in the log on the disk before it is answered, so that a page that is
loaded again, a second page or a service that was killed lose nothing. Nothing else is
kept: the state is what the log says. New thresholds apply to the served model at once,
and to its folder.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from textcapsules.base.errors import TextCapsulesError
from textcapsules.data.reviews import export_reviews
from textcapsules.data.table_formats import form_of
from textcapsules.deploy.service.answers import (
    BatchKey,
    Service,
    format_explanation,
)
from textcapsules.deploy.service.schema import (
    RecalibrateRequest,
    RefusedError,
    ReviewDecision,
    ReviewState,
    ReviewUndo,
)
from textcapsules.inference.recalibrate import Recalibration, save_in_place
from textcapsules.inference.review import ENOUGH, ReviewQueue, expected
from textcapsules.reasons.methods import can_explain

logger = logging.getLogger(__name__)

__all__ = ["ReviewDesk", "add_review_routes"]

FIT_EVERY = 10  # reviewed texts
PHRASES = 3  # per label

Result = TypeVar("Result")


class ReviewDesk:
    """One model's review: what is asked, decided and made of it.

    Args:
        queue: the texts and the log.
        name: of the served model.
        folder: of the model, which gets the new thresholds.
        out: table that the reviewed texts are exported to.
    """

    def __init__(self, queue: ReviewQueue, name: str, folder: Path, out: Path) -> None:
        self.queue, self.name, self.folder, self.out = queue, name, folder, out
        self.lock = threading.Lock()
        self.fitted: Recalibration | None = None
        self.fitted_on = -1  # tens of reviewed texts that `fitted` is from

    async def run(self, action: Callable[..., Result], *given: Any) -> Result:
        """Run one action after another, away from the thread of the connections."""

        def alone() -> Result:
            with self.lock:
                return action(*given)

        try:
            return await asyncio.to_thread(alone)
        except TextCapsulesError as error:
            raise RefusedError(503, f"the review must be saved; {error}") from error

    def decide(self, decision: ReviewDecision) -> None:
        """Log a decision, if it is about a text and labels that there are."""
        queue = self.queue
        if decision.text not in queue.row:
            raise RefusedError(422, "text must be one of those to review; got another")
        unknown = set(decision.labels) - set(queue.classifier.labels.names)
        if unknown:
            raise RefusedError(422, "labels must be those of the model; got others")
        if decision.skip:
            queue.skip(decision.text)
        else:
            queue.decide(decision.text, decision.labels)

    def undo(self, entry: str | None) -> str | None:
        """Undo a decision; return its text, to be shown again."""
        undone = self.queue.log.undo(entry)
        return None if undone is None else undone.text

    def recalibrate(self, force: bool) -> dict[str, Any]:
        """Give the model thresholds from all decisions, unless they are worse."""
        fitted = self.fit()
        if fitted is None:
            raise RefusedError(
                422, f"reviewed texts must be at least {ENOUGH} for new thresholds"
            )
        is_taken = force or not fitted.is_worse
        if is_taken:
            save_in_place(self.queue.classifier, fitted, self.folder)
        return {"is_taken": is_taken, **fitted.to_dict()}

    def fit(self) -> Recalibration | None:
        """Return thresholds from all decisions so far, and remember them."""
        self.fitted = self.queue.fit()
        self.fitted_on = self.queue.counts()["reviewed"] // FIT_EVERY
        return self.fitted

    def export(self) -> bytes:
        """Write the reviewed texts as a table, and return it."""
        columns = self.queue.classifier.config.data
        export_reviews(
            self.queue.log,
            self.out,
            text_column=columns.text_column,
            label_column=columns.label_column,
        )
        return self.out.read_bytes()

    def close(self) -> None:
        """Export what is decided; where that is refused, the log has it all."""
        try:
            with self.lock:
                if self.queue.log.entries():
                    self.export()
        except TextCapsulesError as error:
            logger.warning("%s", error)

    def state(self, first: str | None = None) -> dict[str, Any]:
        """Return counts, the next text, the last decision and the estimate."""
        queue = self.queue
        counts = queue.counts()
        tens = counts["reviewed"] // FIT_EVERY
        if tens and tens != self.fitted_on:
            self.fit()
        labels = queue.classifier.labels
        pairs = zip(labels.names, labels.thresholds, strict=True)
        standing = queue.log.standing()
        last = standing[-1] if standing else None
        return {
            "model": self.name,
            "labels": [{"name": name, "threshold": value} for name, value in pairs],
            **counts,
            "item": None,
            "last": None
            if last is None
            else {"id": last.id, "text": last.text, "labels": list(last.labels)},
            "estimate": None if self.fitted is None else expected(self.fitted),
            "next": queue.upcoming(first=first),
        }

    async def reply(self, service: Service, first: str | None = None) -> JSONResponse:
        """Answer with the state, the next text with its reasons."""
        state = await self.run(self.state, first)
        for item in state.pop("next"):
            names = self.queue.classifier.labels.names
            state["item"] = {
                "text": item.text,
                "labels": list(item.proposed),
                "scores": dict(zip(names, item.scores.tolist(), strict=True)),
                "random": item.is_random,
                "explanation": None,
            }
            if can_explain(self.queue.classifier):
                [read] = await service.queue(BatchKey(self.name, PHRASES), [item.text])
                if read.explanation is not None:
                    state["item"]["explanation"] = format_explanation(read.explanation)
        return JSONResponse(state)


def add_review_routes(
    app: FastAPI, service: Service, desk: ReviewDesk, refusals: dict[int | str, Any]
) -> None:
    """Add what the review needs to the API."""
    described = {"response_model": ReviewState, "responses": refusals}

    @app.get("/v1/review", **described)
    async def review_state() -> JSONResponse:
        """Tell the next text to review, and how far the review is."""
        return await desk.reply(service)

    @app.post("/v1/review/decision", **described)
    async def review_decision(request: ReviewDecision) -> JSONResponse:
        """Save all labels of a text, or that it is skipped; go on to the next."""
        await desk.run(desk.decide, request)
        return await desk.reply(service)

    @app.post("/v1/review/undo", **described)
    async def review_undo(request: ReviewUndo) -> JSONResponse:
        """Undo a decision, by default the last, and ask about its text again."""
        text = await desk.run(desk.undo, request.id)
        return await desk.reply(service, text)

    @app.post("/v1/review/recalibrate", responses=refusals)
    async def review_recalibrate(request: RecalibrateRequest) -> JSONResponse:
        """Give the model, and its folder, thresholds from all decisions."""
        return JSONResponse(await desk.run(desk.recalibrate, request.force))

    @app.get(
        "/v1/review/export",
        response_class=Response,
        responses={200: {"content": {"text/csv": {}}}, **refusals},
    )
    async def review_export() -> Response:
        """Return the reviewed texts as a table."""
        table = await desk.run(desk.export)
        name = desk.out.name.encode("ascii", "replace").decode().replace('"', "_")
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        kind = "text/csv" if form_of(desk.out) == "csv" else "application/octet-stream"
        return Response(table, media_type=kind, headers=headers)
