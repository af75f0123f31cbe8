import gzip
import hashlib
import socket
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from textcapsules.base.errors import (
    CorpusError,
    DownloadError,
    TextCapsulesError,
    WriteError,
)
from textcapsules.data.catalogue import Card, Content, Source, card
from textcapsules.data.fetch import fetch, fetch_card

pytest.importorskip("pooch")

TRAIN = b"LOC:city Where ?\nNUM:count How many ?\n"
TEST = b"HUM:ind Who ?\n"
FILES = {"/train_5500.label": TRAIN, "/TREC_10.label": TEST}
COARSE = b"LOC\tWhere ?\nNUM\tHow many ?\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves FILES; `faults` lists, by path, what to do wrong first."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hits: list[str] = []
        self.faults: dict[str, list[str]] = {}
        self.base = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server  # type: ignore[assignment]

    def do_GET(self):
        self.server.hits.append(self.path)
        content = FILES.get(self.path)
        faults = self.server.faults.get(self.path)
        fault = faults.pop(0) if faults else None
        if content is None or fault in ("404", "500"):
            self.send_error(int(fault or 404))
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault == "cut":
            content = content[:-3]
        if fault == "wrong":
            content = content[::-1]
        self.wfile.write(content)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def tiny(base: str, *, known: bool = True, content: bytes = COARSE) -> Card:
    """Return a card like TREC's, for the made-up files at `base`."""
    sources = tuple(
        Source(
            file=path[1:],
            urls=(base + path,),
            sha256=sha256(FILES[path]) if known else None,
        )
        for path in FILES
    )
    files = {
        "trec/train.tsv.gz": Content(rows=2, sha256=sha256(content)),
        "trec/test.tsv.gz": Content(rows=1, sha256=None),
        "trec/train_fine.tsv.gz": Content(rows=2, sha256=None),
        "trec/test_fine.tsv.gz": Content(rows=1, sha256=None),
    }
    return replace(card("trec"), sources=sources, files=files)


@pytest.fixture
def get(server, tmp_path):
    """Fetch into tmp_path/data with raw files in tmp_path/raw."""

    def fetch_tiny(entry=None, **options):
        options = {"cache": tmp_path / "raw", **options}
        return fetch_card(entry or tiny(server.base), tmp_path / "data", **options)

    return fetch_tiny


def files_in(folder):
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }


def test_fetch_writes_canonical_files_and_their_sums(get, tmp_path):
    done = get()
    data = tmp_path / "data"
    assert set(done.written) == set(tiny("x").files) and done.kept == ()
    assert files_in(data) == {*done.written, "SHA256SUMS"}
    packed = (data / "trec/train.tsv.gz").read_bytes()
    assert gzip.decompress(packed) == COARSE
    assert packed[4:8] == bytes(4)  # no time in the header: the bytes can be repeated
    lines = (data / "SHA256SUMS").read_text().splitlines()
    assert f"{sha256(packed)}  trec/train.tsv.gz" in lines and len(lines) == 4
    assert done.remarks == ()


def test_second_fetch_downloads_and_writes_nothing(get, server, tmp_path):
    get()
    server.hits.clear()
    before = (tmp_path / "data/trec/train.tsv.gz").stat().st_mtime_ns
    done = get()
    assert done.written == () and set(done.kept) == set(tiny("x").files)
    assert server.hits == []
    assert (tmp_path / "data/trec/train.tsv.gz").stat().st_mtime_ns == before


def test_damaged_file_is_made_again_from_the_cache(get, server, tmp_path):
    get()
    server.hits.clear()
    path = tmp_path / "data/trec/train.tsv.gz"
    path.write_bytes(path.read_bytes()[:-5])
    assert get().written == ("trec/train.tsv.gz",)
    assert gzip.decompress(path.read_bytes()) == COARSE
    assert server.hits == []


def test_whole_file_of_another_version_is_kept_unless_overwritten(get, tmp_path):
    path = tmp_path / "data/trec/train.tsv.gz"
    path.parent.mkdir(parents=True)
    own = gzip.compress(b"LOC\tmy own\n")
    path.write_bytes(own)
    (tmp_path / "data/SHA256SUMS").write_text(f"{'1' * 64}  mr/all.tsv.gz\n")
    assert get().kept == ("trec/train.tsv.gz",)
    assert path.read_bytes() == own
    sums = (tmp_path / "data/SHA256SUMS").read_text()
    assert f"{sha256(own)}  trec/train.tsv.gz" in sums
    assert "mr/all" not in sums  # a file that is not there has no sum
    assert len(get(overwrite=True).written) == 4
    assert gzip.decompress(path.read_bytes()) == COARSE


@pytest.mark.parametrize("fault", ["cut", "wrong", "500"])
def test_passing_fault_is_tried_again(get, server, fault):
    server.faults["/train_5500.label"] = [fault]
    assert len(get().written) == 4
    assert server.hits.count("/train_5500.label") == 2


@pytest.mark.parametrize(
    ("fault", "reason", "tries"),
    [
        ("cut", "a connection that broke off", 3),
        ("wrong", f"a file with SHA-256 {sha256(TRAIN[::-1])}", 3),
        ("500", "status 500", 3),
        ("404", "status 404", 1),  # a server that says no is not asked again
    ],
)
def test_lasting_fault_leaves_nothing_behind(
    get, server, tmp_path, fault, reason, tries
):
    server.faults["/train_5500.label"] = [fault] * 9
    with pytest.raises(DownloadError, match=rf"train_5500\.label must .*{reason} from"):
        get()
    assert server.hits == ["/train_5500.label"] * tries
    assert files_in(tmp_path) == set()


def test_second_address_is_tried_after_the_first(get, server):
    entry = tiny(server.base)
    first = entry.sources[0]
    urls = (f"{server.base}/gone", *first.urls)
    moved = replace(entry, sources=(replace(first, urls=urls), entry.sources[1]))
    assert len(get(moved).written) == 4
    assert server.hits[:2] == ["/gone", "/train_5500.label"]


def test_no_network_is_one_clear_line(get):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(DownloadError, match="no connection from http") as caught:
        get(tiny(f"http://127.0.0.1:{port}"))
    assert "\n" not in str(caught.value)


def test_unknown_download_is_checked_by_what_it_becomes(get, server, tmp_path):
    assert len(get(tiny(server.base, known=False)).written) == 4
    other = tiny(server.base, known=False, content=b"another text\n")
    with pytest.raises(CorpusError, match=rf"must hold text .* got {sha256(COARSE)}"):
        get(other, overwrite=True)
    # The suspect downloads are gone, the files of before are not.
    assert files_in(tmp_path / "raw") == set()
    assert gzip.decompress((tmp_path / "data/trec/train.tsv.gz").read_bytes()) == COARSE


def test_published_download_that_converts_differently_is_remarked_on(get, server):
    done = get(tiny(server.base, content=b"another text\n"))
    assert done.remarks == (
        "trec/train.tsv.gz differs in detail from the catalogue's version.",
    )


def test_wrong_number_of_rows_is_refused(get, server, tmp_path):
    entry = tiny(server.base)
    files = dict(entry.files) | {"trec/test.tsv.gz": Content(rows=500, sha256=None)}
    with pytest.raises(CorpusError, match=r"must have 500 rows; got 1 from"):
        get(replace(entry, files=files))
    assert not (tmp_path / "data").exists()


def test_folder_that_cannot_be_written_is_named(get, tmp_path):
    (tmp_path / "data").write_text("a file is in the way")
    with pytest.raises(WriteError, match=r"train\.tsv\.gz must be writable"):
        get()


def test_missing_pooch_names_the_extra(get, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(TextCapsulesError, match=r"pip install 'textcapsules\[fetch\]'"):
        get()


def test_bar_is_shown_only_when_asked_for(get, capfd, tmp_path):
    get(progress=False)
    assert capfd.readouterr() == ("", "")
    get(progress=True, overwrite=True, cache=tmp_path / "fresh")
    assert "%" in capfd.readouterr().err


def test_fetch_takes_names_of_the_catalogue(monkeypatch, tmp_path, server):
    monkeypatch.setitem(
        sys.modules["textcapsules.data.catalogue"].CATALOGUE, "trec", tiny(server.base)
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    done = fetch("trec", tmp_path / "data")
    assert done.name == "trec" and len(done.written) == 4
    assert files_in(tmp_path / "caches") == {
        "textcapsules/raw/trec/train_5500.label",
        "textcapsules/raw/trec/TREC_10.label",
    }
    with pytest.raises(CorpusError, match=r"corpus must be one of .* got 'imdb'"):
        fetch("imdb", tmp_path)
