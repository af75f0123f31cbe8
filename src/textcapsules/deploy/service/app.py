"""The service as an ASGI application: routes, guards and the page."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.middleware.cors import CORSMiddleware

from textcapsules import __version__
from textcapsules.deploy.service.answers import Service
from textcapsules.deploy.service.guard import (
    BodyGuard,
    HostGuard,
    OuterGuard,
    TokenGuard,
)
from textcapsules.deploy.service.review import ReviewDesk, add_review_routes
from textcapsules.deploy.service.schema import (
    ErrorReply,
    ModelList,
    PredictReply,
    PredictRequest,
    StatusReply,
    add_error_replies,
    error_reply,
)
from textcapsules.draw.palette import DARK, LIGHT, Theme

__all__ = ["colour_sheet", "create_app"]


PAGE = Path(str(files("textcapsules.deploy.service") / "page"))
COLOURS = "/colours.css"
MEDIA_TYPES = {  # the machine's own list may lack them
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply, "description": description}
    for status, description in {
        400: "The body cannot be read.",
        401: "The token is missing or wrong.",
        404: "No such model.",
        408: "The body took too long to arrive.",
        413: "The body is too large.",
        422: "The request is not valid; the message says why.",
        429: "The queue is full; Retry-After says when to come back.",
        500: "A fault of the service.",
        503: "There are too many connections, or the model cannot score.",
        504: "The answer took too long.",
    }.items()
}


def create_app(
    service: Service,
    *,
    token: str | None = None,
    origins: Sequence[str] = (),
    hosts: Iterable[str] = LOOPBACK,
    desk: ReviewDesk | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        service: the models; it runs while the application does.
        token: clients must send it, except for the page and the health checks.
        origins: web pages of other origins that may call the service.
        hosts: names the service answers to, `*` for any.
        desk: the review, if there is one.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        service.batcher.stop()
        if desk is not None:
            desk.close()

    app = FastAPI(
        title="textcapsules",
        summary="All the labels a text deserves, and the phrases that spoke for them.",
        version=__version__,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    add_error_replies(app)
    add_routes(app, service)
    if desk is not None:
        add_review_routes(app, service, desk, REFUSALS)
        service.has_review = True
    add_page(app)
    # Added from the inside out.
    limits = service.limits
    app.add_middleware(BodyGuard, max_bytes=limits.max_bytes, seconds=limits.time_limit)
    if token is not None:
        app.add_middleware(TokenGuard, token=token, is_guarded=is_guarded)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    app.add_middleware(HostGuard, hosts=hosts)
    app.add_middleware(OuterGuard, metrics=service.metrics, paths=known_paths(app))
    return app


def is_guarded(path: str) -> bool:
    """Tell whether a path needs the token: all but the page and the health checks."""
    return path.startswith("/v1/") or path in ("/metrics", "/openapi.json")


def page_files() -> dict[str, Path]:
    """Return the files of the page by their paths."""
    paths = {f"/{f.name}": f for f in PAGE.iterdir() if f.suffix in MEDIA_TYPES}
    return {"/": paths.pop("/index.html"), **paths}


def known_paths(app: FastAPI) -> set[str]:
    """Return the paths to count by; any other path could hold a text."""
    return {"/openapi.json", COLOURS, *page_files(), *app.openapi()["paths"]}


def add_page(app: FastAPI) -> None:
    """Add the page, file by file: a folder would also answer for the API's paths."""
    colours = partial(Response, colour_sheet(), media_type="text/css")
    app.add_route(COLOURS, page_route(colours), include_in_schema=False)
    for path, file in page_files().items():
        reply = partial(FileResponse, file, media_type=MEDIA_TYPES[file.suffix])
        app.add_route(path, page_route(reply), include_in_schema=False)


def colour_sheet() -> str:
    """Return the colours of the reports as custom properties, light and dark."""
    dark = f"@media (prefers-color-scheme: dark) {{ {properties(DARK)} }}"
    return f"{properties(LIGHT)}\n{dark}\n"


def properties(theme: Theme) -> str:
    """Return one theme's colours: `--ink` and so on, `--label-0` and so on."""
    named = {name: value for name, value in theme._asdict().items() if name != "labels"}
    named |= {f"label-{place}": value for place, value in enumerate(theme.labels)}
    return f":root {{ {' '.join(f'--{k}: {v};' for k, v in named.items())} }}"


def page_route(
    reply: Callable[[], Response],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a route that always gives the same answer."""

    async def send(request: Request) -> Response:
        return reply()

    return send


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the API."""

    @app.post("/v1/predict", response_model=PredictReply, responses=REFUSALS)
    async def predict(request: PredictRequest) -> JSONResponse:
        """Label one text or many."""
        return JSONResponse(await service.predict(request))

    @app.get("/v1/models", response_model=ModelList, responses=only(401))
    async def models() -> JSONResponse:
        """List the models and the limits of a request."""
        return JSONResponse(service.describe())

    @app.get("/healthz", response_model=StatusReply)
    async def health() -> JSONResponse:
        """Tell that the process answers."""
        return JSONResponse({"status": "ok"})

    @app.get("/readyz", response_model=StatusReply, responses=only(503))
    async def ready() -> JSONResponse:
        """Tell whether requests are taken."""
        if not service.batcher.is_ready:
            return error_reply(503, "the model must run; it is starting or stopping")
        return JSONResponse({"status": "ready"})

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **only(401)},
    )
    async def metrics() -> Response:
        """Count requests, texts, batches and time, for Prometheus."""
        return Response(service.metrics.page(), media_type=CONTENT_TYPE_LATEST)


def only(status: int) -> dict[int | str, dict[str, Any]]:
    """Return one refusal for a route's documentation."""
    return {status: REFUSALS.get(status, {"model": ErrorReply})}
