"""Errors as the service words them: one form of JSON for every refusal.

No reply repeats a text: what was sent may be long, secret, or not even valid Unicode.
"""

import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

__all__ = ["RefusedError", "add_error_replies", "error_reply"]

REASONS = {
    400: "bad_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_too_slow",
    413: "request_too_large",
    422: "invalid_request",
    429: "queue_full",
    431: "headers_too_large",
    500: "internal_error",
    503: "unavailable",
    504: "time_limit",
}

EXPECTED = re.compile(r"^\w+ should ")  # as pydantic says it: "List should have ..."


class RefusedError(Exception):
    """A request that gets a status and a sentence in place of an answer."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def error_reply(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return a refusal: a word for programs, a sentence for people."""
    reason = REASONS.get(status, "error")
    content = {"error": {"reason": reason, "message": message}}
    return JSONResponse(content, status, dict(headers or {}))


def add_error_replies(app: FastAPI) -> None:
    """Give every error the same form."""

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> JSONResponse:
        return error_reply(error.status, error.message, error.headers)

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> JSONResponse:
        return error_reply(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_reply(422, "; ".join(fault(one) for one in error.errors()[:5]))


def fault(error: Mapping[str, Any]) -> str:
    """Word one fault of a request: where, and what was expected there."""
    place = error["loc"][1:]  # behind "body"
    if error["type"] == "json_invalid":
        return f"body must be JSON; {error['ctx']['error']} at character {place[0]}"
    if error["type"] == "extra_forbidden":
        return f"{place[-1]!a:.60} is not a field of a request"
    if error["type"] == "model_attributes_type":
        return "body must be a JSON object with content-type: application/json"
    name = ".".join(str(part) for part in place) or "body"
    if error["type"] == "missing":
        return f"{name} must be there; got none"
    return f"{name} {EXPECTED.sub('must ', error['msg'])}"
