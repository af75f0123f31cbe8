"""`textcapsules serve`."""

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from textcapsules.base.collector import collector_paused
from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import Device, Json
from textcapsules.cli.show import print_json, say

__all__ = ["Port", "announce", "serve"]

Port = Annotated[
    int, typer.Option(help="Port of the service; 0 lets the system choose a free one.")
]


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Folders of trained models, each as FOLDER or NAME=FOLDER.",
        ),
    ],
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; one that others can reach needs --token-file."
        ),
    ] = "127.0.0.1",
    port: Port = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that every client must send."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Web origin whose pages may call the service; may be repeated.",
        ),
    ] = None,
    max_texts: Annotated[
        int, typer.Option(help="Maximum number of texts per request.")
    ] = 256,
    max_characters: Annotated[
        int, typer.Option(help="Maximum number of characters per text.")
    ] = 20_000,
    max_bytes: Annotated[
        int, typer.Option(help="Maximum size of a request, in bytes.")
    ] = 2 * 1024 * 1024,
    queue: Annotated[
        int,
        typer.Option(
            help="Maximum number of texts that wait; more are answered with 429."
        ),
    ] = 1024,
    batch: Annotated[
        int, typer.Option(help="Maximum number of texts that the model reads at once.")
    ] = 64,
    batch_wait: Annotated[
        float,
        typer.Option(help="Seconds that an incomplete batch waits for more texts."),
    ] = 0.0,
    time_limit: Annotated[
        float,
        typer.Option(
            help="Seconds for a request to arrive, to be answered, and for the client "
            "to take the answer."
        ),
    ] = 30.0,
    header_limit: Annotated[
        float, typer.Option(help="Seconds for the headers of a request to arrive.")
    ] = 10.0,
    idle_limit: Annotated[
        float, typer.Option(help="Seconds a connection stays open between requests.")
    ] = 15.0,
    max_connections: Annotated[
        int, typer.Option(help="Maximum number of open connections.")
    ] = 1024,
    max_per_address: Annotated[
        int,
        typer.Option(
            help="Maximum number of connections per client address; 0 is no limit, "
            "for a service behind a proxy."
        ),
    ] = 256,
    review: Annotated[
        Path | None,
        typer.Option(
            help="File of texts to review over HTTP and on the page, with one model.",
        ),
    ] = None,
    reviewed: Annotated[
        Path | None,
        typer.Option(
            help="Table to write the reviewed texts to; each decision is saved at once "
            "in a log beside it.",
        ),
    ] = None,
    text_column: Annotated[
        str | None,
        typer.Option(
            help="Column of --review that holds the texts; by default the one that the "
            "model was trained with."
        ),
    ] = None,
    device: Device = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="Threads of the model on a CPU; by default one less than there are "
            "cores.",
        ),
    ] = None,
    access_log: Annotated[
        bool,
        typer.Option("--access-log", help="Log a line per request, without its texts."),
    ] = False,
    json: Json = False,
) -> None:
    """Serve models over HTTP, with a page to try them on.

    POST /v1/predict, GET /v1/models, /healthz, /readyz, /metrics, /openapi.json; the
    page is at /. After Ctrl-C or SIGTERM it answers what it has accepted, and stops.

      textcapsules serve runs/demo/model

      textcapsules serve tickets=runs/demo/model news=runs/news --port 9000

      textcapsules serve runs/demo/model --review new.csv --reviewed reviewed.csv
    """
    if (review is None) != (reviewed is None):
        raise ConfigError(
            "review and reviewed must be given together: the texts, and where the "
            "decisions go; got one of them."
        )
    with collector_paused():
        from textcapsules.deploy.service.limits import Limits
        from textcapsules.deploy.service.run import ReviewFiles
        from textcapsules.deploy.service.run import serve as run

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    if access_log:
        logging.getLogger("textcapsules.deploy.service.access").setLevel(logging.INFO)
    run(
        models,
        host=host,
        port=port,
        token_file=token_file,
        origins=cors or (),
        limits=Limits(
            max_texts=max_texts,
            max_characters=max_characters,
            max_bytes=max_bytes,
            queue=queue,
            batch=batch,
            batch_wait=batch_wait,
            time_limit=time_limit,
            header_limit=header_limit,
            idle_limit=idle_limit,
            max_connections=max_connections,
            max_per_address=max_per_address,
        ),
        device=device,
        threads=threads,
        review=None
        if review is None or reviewed is None
        else ReviewFiles(review, reviewed, text_column),
        on_ready=announce(json=json),
    )


def announce(*, json: bool) -> Callable[[str, Sequence[str]], None]:
    """Return a function that prints where the service is, in words or as JSON."""

    def on_ready(url: str, names: Sequence[str]) -> None:
        if json:
            print_json({"url": url, "models": list(names)})
        else:
            say(f"{', '.join(names)} at {url} (Ctrl-C to stop)")
        sys.stdout.flush()

    return on_ready
