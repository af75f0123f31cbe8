"""README.md and docs/: every block of code runs, every link leads somewhere.

The blocks of a page run in their order, in a folder of small files made for it. Python
blocks share one namespace. Commands run in this process, through the real command line;
`serve` goes on beside it to the end of the page. A TOML block is the file that its
first line names. Where JSON is shown, what was printed must have its keys.
"""

import functools
import importlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer.main
import uvicorn

import textcapsules
from fake_hub import FakeHub, fake_hub
from textcapsules.cli import app
from textcapsules.cli.app import Verb
from textcapsules.config import preset
from textcapsules.config.run import PRESETS
from textcapsules.data import load
from textcapsules.data.tickets import read_tickets
from textcapsules.deploy import hub
from textcapsules.deploy.service import run as serving
from textcapsules.lab import bench, demo
from textcapsules.lab.bench import measure, speed
from textcapsules.lab.bench.cases import BenchCase, BenchLayer
from textcapsules.lab.paper.place import write_tiny_corpora
from textcapsules.training.run import train
from tiny_encoder import write_encoder
from toy import TINY_MODEL, TINY_TRAIN, run_cli, tiny_config

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Blocks that are no code, or not run: how they begin, and why.
NOT_RUN_BLOCKS = {
    "make demo": "installs the package; what it runs is tests/lab/test_demo.py's",
}
# Commands that are not run: how they begin, and why.
NOT_RUN = {
    "make demo": "installs the package; what it runs is tests/lab/test_demo.py's",
    ". .venv/bin/activate": "changes a shell that a person types into",
    "textcapsules data fetch": "downloads; tests/data/test_fetch.py has a server",
}
# What is changed in a command or a block before it runs.
SUBSTITUTIONS = {
    "textcapsules serve": "textcapsules serve --port 0",  # 8000 may be taken
    "--host 0.0.0.0": "--host 127.0.0.1",  # no test is open to others
    "textcapsules demo --out runs/demo": "textcapsules demo --out runs/demo-again",
    "reproduce all --quick": "reproduce table1 --quick --only cnn_rand/trec --jobs 1",
    "reproduce table1 --only": "reproduce table1 --jobs 1 --only",  # in this process
    "--seconds 60": "--seconds 0",  # still some hundred requests
    "textcapsules compare": "textcapsules compare --encoder none",
    "--minutes 3": "--minutes 0.1",
    "refusal.py runs/demo/model": "refusal.py runs/demo/model --per-kind 3",
    "--engine ray": "--engine plain",  # tests/inference/test_bulk_ray.py starts Ray
}
# Programs of the system that commands may use.
PROGRAMS = ("cat", "curl", "mkdir", "openssl", "python")
TINY = {"model": TINY_MODEL, "train": TINY_TRAIN}  # on top of every preset
SERVED = "http://127.0.0.1:8000"  # as the pages have it


class Block(NamedTuple):
    """A fenced block and where it stands."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, content: str) -> list[Block]:
    blocks = []
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(content):
        language, text = match.groups()
        if not language and re.search(r"^\$ ", text, re.MULTILINE):
            language = "console"
        line = content[: match.start()].count("\n") + 1
        blocks.append(Block(page, line, language, text))
    fences = re.findall(r"^[> \t]*(?:```|~~~)", content, re.MULTILINE)
    assert len(fences) == 2 * len(blocks), f"{page}: fences must be ``` and one word"
    return blocks


def commands_of(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block, and the lines it is shown to print."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *shown = part.replace("\\\n", " ").splitlines()
        yield re.sub(r"  +", " ", command).strip(), shown


def is_listed(text: str, table: dict[str, str]) -> bool:
    return any(text.startswith(start) for start in table)


def has_shape(shown: Any, printed: Any) -> bool:
    """Tell whether what was printed has every key that is shown, at any depth."""
    if isinstance(shown, dict):
        return isinstance(printed, dict) and all(
            key in printed and has_shape(value, printed[key])
            for key, value in shown.items()
        )
    if isinstance(shown, list):
        pairs = zip(shown, printed, strict=False) if isinstance(printed, list) else ()
        return isinstance(printed, list) and all(has_shape(*pair) for pair in pairs)
    return not isinstance(printed, dict | list)


class Reader:
    """Does what a page says, block by block."""

    def __init__(self, stops: ExitStack) -> None:
        self.stops, self.names = stops, {"__name__": "docs"}
        self.printed, self.url = "", ""

    def read(self, block: Block) -> None:
        if is_listed(block.text, NOT_RUN_BLOCKS):
            return
        kinds: dict[str, Callable[[Block], None]] = {
            "python": self.python,
            "console": self.console,
            "json": self.json,
            "text": self.text,
            "toml": self.toml,
        }
        assert block.language in kinds, (
            f"{block.place}: a block must be run or listed in NOT_RUN_BLOCKS"
        )
        kinds[block.language](block)

    def changed(self, text: str) -> str:
        for old, new in SUBSTITUTIONS.items():
            text = text.replace(old, new)
        return text.replace(SERVED, self.url) if self.url else text

    def python(self, block: Block) -> None:
        out = io.StringIO()
        code = compile(self.changed(block.text), block.place, "exec")
        with redirect_stdout(out):
            exec(code, self.names)
        self.printed = out.getvalue()

    def toml(self, block: Block) -> None:
        name = block.text.partition("\n")[0].removeprefix("# ")
        assert name.endswith(".toml"), f"{block.place}: # and a file's name must lead"
        Path(name).write_text(block.text, encoding="utf-8")

    def json(self, block: Block) -> None:
        self.compare(block.text, block.place)

    def text(self, block: Block) -> None:
        """See that something was printed; .ci/readme.py compares it, on real models."""
        assert self.printed.strip(), f"{block.place}: shows what was not printed"

    def compare(self, shown: str, place: str) -> None:
        printed = self.printed.strip().splitlines()
        assert printed, f"{place}: shows JSON where nothing was printed"
        assert has_shape(json.loads(shown), json.loads(printed[-1])), (
            f"{place}: shows keys that are not in {printed[-1]}"
        )

    def console(self, block: Block) -> None:
        for command, shown in commands_of(block):
            if is_listed(command, NOT_RUN):
                continue
            program = command.split()[0]
            run = self.own if program == "textcapsules" else self.system
            known = program in ("textcapsules", *PROGRAMS)
            assert known, f"{block.place}: {program!r} is not listed in NOT_RUN"
            run(self.changed(command), block.place)
            for line in shown:
                if line.startswith("{"):
                    self.compare(line, block.place)

    def own(self, command: str, place: str) -> None:
        """Run the command line in this process; < and > are its standard streams."""
        words, stdin, target = shlex.split(command, comments=True)[1:], b"", None
        while len(words) > 2 and words[-2] in ("<", ">"):
            *words, sign, file = words
            if sign == "<":
                stdin = Path(file).read_bytes()
            else:
                target = Path(file)
        ran = run_cli(*words, stdin=stdin)
        assert ran.code == 0, f"{place}: {command}\n{ran.err}"
        self.printed = ran.out
        if target is not None:
            assert ran.out, f"{place}: {command} printed nothing"
            target.write_text(ran.out, encoding="utf-8")
        if words[0] == "serve":
            address = re.search(r"http://[\d.:]+", ran.out)
            assert address is not None, ran.out
            self.url = address[0]

    def system(self, command: str, place: str) -> None:
        program = command.split()[0]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        if shutil.which(program, path=path) is None:
            pytest.skip(f"{program} is not installed")
        done = subprocess.run(
            ["bash", "-c", command],
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{place}: {command}\n{done.stderr}"
        self.printed = done.stdout

    def serve_beside(
        self, config: uvicorn.Config, listener: Any, on_ready: Callable[[], None]
    ) -> None:
        """Stand in for `serve.run.run_server`, which would wait for a signal."""
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener.dup()],))
        thread.start()
        self.stops.callback(thread.join)
        self.stops.callback(setattr, server, "should_exit", True)
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        on_ready()


few_tickets = functools.partial(
    read_tickets, n_train=180, n_dev=48, n_test=24, n_multi=24
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that the pages take for granted."""
    folder = tmp_path_factory.mktemp("docs")
    words = write_tiny_corpora(folder / "corpora", folder / "none")
    vectors = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float32)
    np.savez(folder / "word2vec.npz", words=np.array(words), vectors=vectors)
    with (folder / "GoogleNews.bin").open("wb") as file:
        file.write(b"%d 8\n" % len(words))
        for word, vector in zip(words, vectors, strict=True):
            file.write(word.encode() + b" " + vector.tobytes())
    write_encoder(folder / "encoders" / "gte-small")
    config = tiny_config("tickets-multi", train={"task": "multi-label", "epochs": 6})
    train(config, folder / "runs/demo/model", corpus=few_tickets("tickets-multi"))
    return folder


def make_benches_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "BENCH_LAYERS", {"tiny": BenchLayer(2, 5, 2, 3, 3)})
    monkeypatch.setattr(speed, "SMALL", {"length": [BenchCase(2, 8, 2)]})
    monkeypatch.setattr(speed, "THREADS_CASE", BenchCase(2, 8, 2))
    few_texts = functools.partial(bench.bench_predict, n_texts=20)
    monkeypatch.setattr(bench, "bench_predict", few_texts)
    at_once = functools.partial(measure.call_times, budget=0.0)
    monkeypatch.setattr(measure, "call_times", at_once)


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeHub]:
    with fake_hub() as served:
        yield served


@pytest.fixture
def reader(
    files: Path, shared: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """Return who reads a page, in a copy of the files, with everything made small."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    for name in ("benchmarks", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    for name, sections in PRESETS.items():
        small = {
            part: {**sections.get(part, {}), **tiny} for part, tiny in TINY.items()
        }
        monkeypatch.setitem(PRESETS, name, {**sections, **small})
    monkeypatch.setattr(load, "read_tickets", few_tickets)
    monkeypatch.setattr(demo, "read_tickets", few_tickets)
    source = {"source": "tickets-multi"}
    monkeypatch.setattr(
        demo, "demo_config", lambda encoder=None: preset("best").replace(data=source)
    )
    make_benches_small(monkeypatch)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    here = {"endpoint": shared.url, "token": "hf_x"}
    push = functools.partial(hub.push_to_hub, **here)
    pull = functools.partial(hub.from_pretrained, **here, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(hub, "push_to_hub", push)
    monkeypatch.setattr(hub, "from_pretrained", pull)
    with ExitStack() as stops:
        page_reader = Reader(stops)
        monkeypatch.setattr(serving, "run_server", page_reader.serve_beside)
        yield page_reader


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_blocks_run(path: Path, reader: Reader) -> None:
    for block in blocks_of(path.name, path.read_text(encoding="utf-8")):
        reader.read(block)


def written_blocks() -> list[Block]:
    return [
        block
        for path in PAGES
        for block in blocks_of(path.name, path.read_text(encoding="utf-8"))
    ]


def written_commands(*, docs_only: bool = False) -> list[str]:
    return [
        command
        for block in written_blocks()
        if block.language == "console" and not (docs_only and block.page == "README.md")
        for command, _ in commands_of(block)
    ]


def test_tables_of_exceptions_have_nothing_to_spare() -> None:
    """An entry that no page needs any more would hide a block to come."""
    blocks, commands = written_blocks(), written_commands()
    for start in NOT_RUN_BLOCKS:
        assert any(block.text.startswith(start) for block in blocks), start
    for start in NOT_RUN:
        assert any(command.startswith(start) for command in commands), start
    for old in SUBSTITUTIONS:
        assert any(old in command for command in commands), old
    for program in PROGRAMS:
        assert any(command.split()[0] == program for command in commands), program


def verbs() -> list[str]:
    """Return every command of the program, as it is typed."""
    commands, groups = [], [("textcapsules", typer.main.get_command(app))]
    while groups:
        name, group = groups.pop()
        group = group.load() if isinstance(group, Verb) else group
        members: dict[str, Any] = getattr(group, "commands", {})
        groups += [(f"{name} {verb}", command) for verb, command in members.items()]
        commands += [] if members else [name]
    return commands


@pytest.mark.parametrize("verb", verbs())
def test_verb_is_shown(verb: str) -> None:
    commands = written_commands(docs_only=True)
    assert any(command.startswith(verb) for command in commands)


def slugs(content: str) -> set[str]:
    """Return what headings are called in links."""
    headings = re.findall(r"^#+ (.+)$", content, re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in kept}


def dead_links(path: Path) -> list[str]:
    content = re.sub(
        r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", content):
        file, _, heading = link.partition("#")
        target = path.parent / file if file else path
        if link.startswith(("https://", "http://")):
            continue
        is_there = target.exists() and not Path(file).is_absolute()
        if not is_there or (
            heading and heading not in slugs(target.read_text(encoding="utf-8"))
        ):
            dead.append(link)
    return dead


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert dead_links(path) == []


def test_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {path.name for path in PAGES if path.name != "README.md"}


def test_release_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.search(r"^## \[([\d.]+)\] - ([\d-]+)$", changelog, re.MULTILINE)
    assert latest is not None
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert latest[1] == textcapsules.__version__
    assert f"version: {latest[1]}\ndate-released: {latest[2]}\n" in citation


def test_reference_names_what_the_package_offers() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(named) == sorted(textcapsules.__all__)


def test_map_names_every_room_and_only_what_exists() -> None:
    page = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "textcapsules"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    first, *others = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", first, re.MULTILINE))
    assert set(rows) == rooms
    for room, content in rows.items():
        docstring = inspect.getdoc(importlib.import_module(f"textcapsules.{room}"))
        assert content == " ".join(str(docstring).partition("\n\n")[0].split()), room
    paths = re.findall(r"`([\w/.]+)`", "".join(others))
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("language", "text", "reason"),
    [
        ("rust", "fn main() {}\n", "must be run or listed"),
        ("", "some words\n", "must be run or listed"),
        ("console", "$ rm -r runs\n", "'rm' is not listed"),
        ("console", "$ textcapsules predict nowhere hello\n", "must be a model folder"),
        ("console", "$ cat nowhere\n", "No such file"),
        ("console", '$ textcapsules data list --json\n{"x": 1}\n', "shows keys"),
        ("python", "assert 1 == 2, 'a wrong sum'\n", "a wrong sum"),
        ("json", "{}\n", "nothing was printed"),
        ("toml", "[data]\n", "must lead"),
    ],
)
def test_wrong_block_is_told(
    reader: Reader, language: str, text: str, reason: str
) -> None:
    [block] = blocks_of("made-up.md", f"Words.\n\n```{language}\n{text}```\n")
    with pytest.raises(AssertionError, match=reason):
        reader.read(block)


@pytest.mark.parametrize(
    "content",
    [
        "- a list\n\n  ```python\n  print()\n  ```\n",
        "~~~python\nprint()\n~~~\n",
        "```python title=x\nprint()\n```\n",
        "```python\nprint()\n",
    ],
)
def test_block_that_would_be_missed_is_told(content: str) -> None:
    with pytest.raises(AssertionError, match="fences must be"):
        blocks_of("made-up.md", content)


def test_dead_links_are_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One, two\n[a](#one-two) [b](#three) [c](gone.md) [d](https://example.org)\n"
    )
    assert dead_links(page) == ["#three", "gone.md"]


@pytest.mark.parametrize(
    ("shown", "fits"),
    [
        ({}, True),
        ({"a": 2}, True),
        ({"a": {}}, False),
        ({"b": [{"c": 1}]}, True),
        ({"b": [{"d": 1}]}, False),
        ({"z": 1}, False),
        ([], False),
    ],
)
def test_shape_is_that_of_the_keys(shown: Any, fits: bool) -> None:
    assert has_shape(shown, {"a": 1, "b": [{"c": 0}, {}]}) is fits


def recorded_steps() -> list[tuple[float, float]]:
    """Return milliseconds and MiB of every row of every record."""
    return [
        (row["ms"], row["peak_mib"])
        for path in (ROOT / "benchmarks" / "results").glob("*.json")
        for row in json.loads(path.read_text(encoding="utf-8")).get("rows", [])
        if "peak_mib" in row
    ]


def test_figures_of_benchmarks_are_in_the_records() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    shown = re.findall(r"([\d.,]+) ms, ([\d,]+) MiB", page)
    assert len(shown) > 20
    for time_shown, memory_shown in shown:
        places = len(time_shown.partition(".")[2])
        memory = int(memory_shown.replace(",", ""))
        assert any(
            round(ms, places) == float(time_shown) and abs(mib - memory) <= 0.5
            for ms, mib in recorded_steps()
        ), (time_shown, memory)
