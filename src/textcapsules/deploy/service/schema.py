"""What requests, answers and refusals look like; OpenAPI is made from it.

Every refusal has one form of JSON. None repeats a text: what was sent may be long,
secret, or not even valid Unicode.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

__all__ = [
    "ErrorReply",
    "ModelList",
    "PredictReply",
    "PredictRequest",
    "RefusedError",
    "StatusReply",
    "add_error_replies",
    "error_reply",
]

Offset = Annotated[int, Field(ge=0, description="In Unicode code points.")]


class PredictRequest(BaseModel):
    """Texts, and what the answer should hold."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"texts": "You charged my card twice, and the app crashes."},
                {"texts": ["Cannot log in.", "Where is my parcel?"], "explain": True},
            ]
        },
    )

    texts: Annotated[
        list[str],
        Field(min_length=1, description="One text, or a list of them."),
        BeforeValidator(
            lambda given: [given] if isinstance(given, str) else given,
            json_schema_input_type=str | Annotated[list[str], Field(min_length=1)],
        ),
    ]
    model: Annotated[
        str | None,
        Field(description="Its name; may be left out where one model is served."),
    ] = None
    multi_label: Annotated[
        bool | None,
        Field(
            strict=True,
            description="All labels past their thresholds, or only the highest; by "
            "default what the model was trained for.",
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            strict=True,
            description="For all labels, in place of the calibrated ones.",
        ),
    ] = None
    explain: Annotated[
        bool,
        Field(strict=True, description="Name the phrases that spoke for each label."),
    ] = False
    phrases: Annotated[
        int,
        Field(ge=1, le=50, strict=True, description="How many phrases per label."),
    ] = 10
    method: Annotated[
        str | None,
        Field(
            description="Which method proposes phrases, one of the model's `methods`; "
            "by default its `method`."
        ),
    ] = None
    changes: Annotated[
        bool,
        Field(
            strict=True,
            description="Look for a small deletion that would take a given label away.",
        ),
    ] = False


class StretchReply(BaseModel):
    """A stretch of the text."""

    text: str
    start: Offset
    end: Offset


class PhraseReply(StretchReply):
    """A stretch of the text that spoke for a label, or against it."""

    strength: Annotated[
        float, Field(description="How far the label's score falls without it.")
    ]


class ChangeReply(BaseModel):
    """A small deletion that takes a label away, tried on the model."""

    deleted: list[StretchReply]
    score: Annotated[float, Field(description="Of the label, without them.")]


class LabelReply(BaseModel):
    """A label's phrases, strongest first, and one strength per token."""

    phrases: list[PhraseReply]
    against: Annotated[
        list[PhraseReply], Field(description="Strengths below zero, the lowest first.")
    ]
    tokens: Annotated[
        list[float], Field(description="The method's strengths, on a scale of its own.")
    ]
    change: Annotated[
        ChangeReply | None,
        Field(description="None if none was found, or `changes` was not asked for."),
    ]


class SentenceLabelReply(BaseModel):
    """How far a given label's score falls without a sentence."""

    label: str
    strength: float


class SentenceReply(BaseModel):
    """A sentence, and what the given labels owe to it, strongest first."""

    start: Offset
    end: Offset
    labels: list[SentenceLabelReply]


class TokenReply(BaseModel):
    """Where a token stands."""

    start: Offset
    end: Offset


class ExplanationReply(BaseModel):
    """What spoke for every label, and the shares that went to none."""

    method: str
    tokens: list[TokenReply]
    labels: dict[str, LabelReply]
    sentences: list[SentenceReply]
    background: Annotated[
        LabelReply | None,
        Field(description="What speaks for no label; None if the model has no such."),
    ]
    background_share: Annotated[
        float | None,
        Field(description="Share of the text's capsules; None without capsules."),
    ]
    unclaimed: Annotated[
        float | None,
        Field(description="Share that went neither to a label nor to the background."),
    ]


class PredictionReply(BaseModel):
    """The labels of one text, strongest first, and the score of every class."""

    labels: list[str]
    scores: dict[str, float]
    readable: Annotated[
        bool, Field(description="False if the model knows no word of the text.")
    ]
    known: Annotated[
        int, Field(ge=0, description="How many of the words read the model knows.")
    ]
    words: Annotated[
        int,
        Field(
            ge=0,
            description="How many words are read: those after the first max_tokens "
            "are not. A model of characters counts characters without blanks.",
        ),
    ]
    explanation: ExplanationReply | None = None


class PredictReply(BaseModel):
    """One prediction per text, in the order of the request."""

    model: str
    predictions: list[PredictionReply]


class ClassReply(BaseModel):
    """A label and the score from which it is given."""

    name: str
    threshold: float


class ModelReply(BaseModel):
    """A served model."""

    name: str
    task: Annotated[str, Field(pattern="^(single|multi)-label$")]
    labels: list[ClassReply]
    explains: Annotated[bool, Field(description="Whether it can be explained.")]
    method: Annotated[
        str | None, Field(description="Which proposes phrases if none is asked for.")
    ]
    methods: Annotated[list[str], Field(description="All that suit the model.")]
    reads: Annotated[
        str,
        Field(
            pattern="^(words|characters)$",
            description="What `known` and `words` of a prediction count.",
        ),
    ]
    max_tokens: Annotated[
        int, Field(description="Words of a text after these are not read.")
    ]


class LimitsReply(BaseModel):
    """How much one request may hold."""

    texts: int
    explained: int
    characters: int
    bytes: int


class ModelList(BaseModel):
    """All models, and the limits of a request."""

    models: list[ModelReply]
    limits: LimitsReply


class StatusReply(BaseModel):
    """The state of the service."""

    status: str


class ErrorDetail(BaseModel):
    """A reason for programs, a message for people."""

    reason: str
    message: str


class ErrorReply(BaseModel):
    """A refusal."""

    error: ErrorDetail


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
    """A request that gets a status and a message instead of an answer."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def error_reply(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return a refusal: a reason for programs, a message for people."""
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
    """Describe one fault of a request: where it is, and what was expected there."""
    place = error["loc"][1:]  # after "body"
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
