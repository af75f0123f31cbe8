"""Download a corpus, check it, convert it, and put it into the folder of corpora.

The only module that uses the network. Raw downloads are cached and checked against
their published sum. They are converted in memory and checked against the catalogue.
Then the files are written one by one, each atomically. Files that exist and are whole
are kept, so that a second run downloads and writes nothing.
"""

import logging
import re
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from textcapsules.base.errors import CorpusError, DownloadError, TextCapsulesError
from textcapsules.base.files import file_sha256, write_bytes, write_text
from textcapsules.data.catalogue import Card, Source, card
from textcapsules.data.convert import convert
from textcapsules.data.corpora import (
    SUMS,
    cache_folder,
    compress,
    data_folder,
    read_content,
    read_sums,
    sha256,
)

__all__ = ["Fetched", "fetch", "fetch_card"]

TIMEOUT = 30  # seconds without an answer


class Fetched(NamedTuple):
    """What a fetch did. Names of files are relative to `data_dir`."""

    name: str
    data_dir: Path
    written: tuple[str, ...]
    kept: tuple[str, ...]
    remarks: tuple[str, ...]


def fetch(
    name: str,
    data_dir: str | Path | None = None,
    *,
    overwrite: bool = False,
    progress: bool | None = None,
    retries: int = 2,
    cache: str | Path | None = None,
) -> Fetched:
    """Fetch a corpus of the catalogue into the folder of corpora.

    Args:
        name: A name of the catalogue.
        data_dir: The folder of corpora; see `data_folder`.
        overwrite: Write files anew even if they exist and are whole.
        progress: Show a bar per download; None: if stderr is a terminal.
        retries: How often a failed download is tried again.
        cache: Where raw downloads are kept; None: in the user's cache.
    """
    return fetch_card(
        card(name),
        data_folder(data_dir),
        overwrite=overwrite,
        progress=sys.stderr.isatty() if progress is None else progress,
        retries=retries,
        cache=Path(cache) if cache else cache_folder() / "raw",
    )


def fetch_card(
    entry: Card,
    root: Path,
    *,
    overwrite: bool = False,
    progress: bool = False,
    retries: int = 2,
    cache: Path,
) -> Fetched:
    """Fetch the corpus of a card; see `fetch`."""
    wanted = [name for name, content in entry.files.items() if content.fetched]
    kept = [name for name in wanted if not overwrite and _is_whole(root, name)]
    needed = [name for name in wanted if name not in kept]
    if not needed:
        return Fetched(entry.name, root, (), tuple(kept), ())
    folder = cache / entry.folder
    raw = {
        source.file: _download(source, folder, progress, retries)
        for source in entry.sources
    }
    contents = convert(entry, raw)
    remarks = _check(entry, contents, folder)
    for name in needed:
        write_bytes(root / name, compress(contents[name]))
    _write_sums(root, wanted)
    return Fetched(entry.name, root, tuple(needed), tuple(kept), tuple(remarks))


def _is_whole(root: Path, name: str) -> bool:
    try:
        return bool(read_content(root, name, remedy=""))
    except CorpusError:
        return False


def _pooch() -> Any:
    """Import pooch, which only this module needs."""
    try:
        import pooch
    except ImportError as error:
        raise TextCapsulesError(
            "pooch must be installed to download; got no such package. "
            "Run pip install 'textcapsules[fetch]'."
        ) from error
    pooch.get_logger().setLevel(logging.WARNING)  # it writes to stderr otherwise
    return pooch


def _download(source: Source, folder: Path, progress: bool, retries: int) -> bytes:
    """Return the bytes of a raw file, from the cache if it is there and right."""
    pooch = _pooch()
    faults = []
    for url in source.urls:
        store = pooch.create(
            path=folder,
            base_url="",
            registry={source.file: source.sha256},
            urls={source.file: url},
            retry_if_failed=retries,
        )
        try:
            path = store.fetch(source.file, downloader=_downloader(pooch, progress))
            return Path(path).read_bytes()
        except (DownloadError, ValueError, OSError) as error:  # requests' are OSErrors
            faults.append(f"{_reason(error)} from {url}")
    right = f" with SHA-256 {source.sha256}" if source.sha256 else ""
    raise DownloadError(
        f"{source.file} must be a download{right}; got {'; '.join(faults)}. Check the "
        f"network and try again, or put the file into {folder} by hand."
    )


def _downloader(pooch: Any, progress: bool) -> Callable[[str, Any, Any], None]:
    """Return a downloader that does not try again if the server refuses."""
    import requests

    bar = progress and find_spec("tqdm") is not None
    http = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)

    def download(url: str, output_file: Any, caller: Any) -> None:
        try:
            http(url, output_file, caller)
        except requests.HTTPError as error:
            if str(_status(error)).startswith("4"):  # pooch would try it again
                raise DownloadError(_reason(error)) from error
            raise

    return download


def _status(error: Any) -> int | None:
    return getattr(error.response, "status_code", None)


def _reason(error: Exception) -> str:
    """Return in one line why a download failed."""
    import requests

    if isinstance(error, requests.HTTPError):
        return f"status {_status(error)}"
    if isinstance(error, requests.Timeout):
        return f"no answer in {TIMEOUT} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "a connection that broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    match = re.search(r"but got ([0-9a-f]{64})", str(error))
    if match:
        return f"a file with SHA-256 {match[1]}"
    return " ".join(str(error).split())


def _check(entry: Card, contents: Mapping[str, bytes], folder: Path) -> list[str]:
    """Compare the converted files with the catalogue; return remarks on them."""
    remarks = []
    for name, content in contents.items():
        known, rows = entry.files[name], content.count(b"\n")
        if rows != known.rows:
            _forget(entry, folder)
            raise CorpusError(
                f"{name} must have {known.rows:,} rows; got {rows:,} from the "
                "download. Fetch again; nothing was written."
            )
        if known.sha256 in (None, sha256(content)):
            continue
        if any(source.sha256 is None for source in entry.sources):
            _forget(entry, folder)
            raise CorpusError(
                f"{name} must hold text with SHA-256 {known.sha256}; got "
                f"{sha256(content)}. Fetch again; nothing was written."
            )
        # The download is the published one: only the conversion's details differ.
        remarks.append(f"{name} differs in detail from the catalogue's version.")
    return remarks


def _forget(entry: Card, folder: Path) -> None:
    """Remove raw files without a published sum, after a wrong conversion."""
    for source in entry.sources:
        if source.sha256 is None:
            (folder / source.file).unlink(missing_ok=True)


def _write_sums(root: Path, names: list[str]) -> None:
    """Update the folder's list of sums."""
    sums = read_sums(root) | {name: file_sha256(root / name) for name in names}
    present = sorted(name for name in sums if (root / name).is_file())
    write_text(root / SUMS, "".join(f"{sums[name]}  {name}\n" for name in present))
