"""`textcapsules serve`."""

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from textcapsules.cli.show import Json, print_json, say

__all__ = ["announce", "serve"]


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Model folders: FOLDER or NAME=FOLDER."
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; another needs --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients must bring.")
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Web origin that may call; may be given again."
        ),
    ] = None,
    max_texts: Annotated[int, typer.Option(help="Texts in a request.")] = 256,
    max_characters: Annotated[int, typer.Option(help="Of a text.")] = 20_000,
    max_bytes: Annotated[int, typer.Option(help="Of a request.")] = 2 * 1024 * 1024,
    queue: Annotated[
        int, typer.Option(help="Texts that may wait; past them, 429.")
    ] = 1024,
    batch: Annotated[int, typer.Option(help="Texts the model reads at once.")] = 64,
    batch_wait: Annotated[
        float, typer.Option(help="Seconds that fewer wait for more.")
    ] = 0.0,
    time_limit: Annotated[
        float,
        typer.Option(
            help="Seconds for a body to arrive, for its answer, and to take it."
        ),
    ] = 30.0,
    header_limit: Annotated[
        float, typer.Option(help="Seconds for a request's headers to arrive.")
    ] = 10.0,
    idle_limit: Annotated[
        float, typer.Option(help="Seconds a connection stays open between requests.")
    ] = 15.0,
    max_connections: Annotated[
        int, typer.Option(help="Connections open at a time.")
    ] = 1024,
    max_per_address: Annotated[
        int,
        typer.Option(
            help="Connections per client address; 0: no limit, as behind a proxy."
        ),
    ] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, max=1024, help="Of the model on a CPU; by default all cores but one."
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="A line a request, without texts.")
    ] = False,
    json: Json = False,
) -> None:
    """Serve models over HTTP, with a page to try them on.

    POST /v1/predict, GET /v1/models, /healthz, /readyz, /metrics, /openapi.json; the
    page is at /. Ctrl-C or SIGTERM stops it after what it has accepted.

      textcapsules serve runs/demo/model

      textcapsules serve tickets=runs/demo/model news=runs/news --port 9000
    """
    from textcapsules.deploy.service.limits import Limits
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
        on_ready=announce(json=json),
    )


def announce(*, json: bool) -> Callable[[str, Sequence[str]], None]:
    """Return what says where the service is: a line for people, or JSON."""

    def on_ready(url: str, names: Sequence[str]) -> None:
        if json:
            print_json({"url": url, "models": list(names)})
        else:
            say(f"{', '.join(names)} at {url} (Ctrl-C to stop)")
        sys.stdout.flush()

    return on_ready
