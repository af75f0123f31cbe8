"""Does what the first pages say, word for word, and compares what is printed.

Needs the model of `make demo`. Every command of a console block must end with exit code
0 and print the lines shown under it, figures with a decimal point left out; `serve` is
started and asked for a prediction. The Python blocks of a page run one after the other,
and print what the next block of text shows.
"""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ("README.md", "docs/quick-start.md")
# Commands that make what is used here, or change the shell that a person types into.
LEFT_OUT = ("make ", "textcapsules demo", ". .venv/bin/activate")


def main() -> None:
    """Run the pages in a folder that has what a checkout has after `make demo`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["PATH"] = path
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("examples").symlink_to(ROOT / "examples")
        Path("runs").mkdir()
        Path("runs/demo").symlink_to(ROOT / "runs/demo")
        for page in PAGES:
            run_page(page)


def run_page(page: str) -> None:
    """Run the blocks of a page in their order."""
    blocks = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    assert blocks, f"{page} must have blocks of code"
    names: dict[str, object] = {}
    printed = ""
    for language, text in blocks:
        if language == "python":
            say(f"{page}: a block of Python")
            printed = run_python(text, names)
        elif language == "text":
            check(text, printed, f"{page}: the block of Python above")
        elif "$ " in text:
            run_console(text)


def run_python(text: str, names: dict[str, object]) -> str:
    """Return what a block prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, "page", "exec"), names)
    return out.getvalue()


def run_console(text: str) -> None:
    """Run the commands of a block and compare the lines shown under each."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.replace("\\\n", " ").partition("\n")
        if command.startswith(LEFT_OUT):
            continue
        say(f"$ {command}")
        if command.startswith("textcapsules serve"):
            ask_service(command)
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,  # nobody presses keys
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if shown.strip():
            check(shown, done.stdout, command)


def ask_service(command: str) -> None:
    """Start the service, ask for a prediction, and stop it."""
    words = ["bash", "-c", f"exec {command.partition('#')[0]} --port 0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = re.search(r"http://[\d.:]+", server.stdout.readline())
        assert address is not None, "serve must print its address"
        request = urllib.request.Request(
            f"{address[0]}/v1/predict",
            json.dumps({"texts": ["You charged my card twice this month."]}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            labels = json.load(answer)["predictions"][0]["labels"]
        server.send_signal(signal.SIGTERM)
    assert labels == ["billing"], labels


def check(shown: str, printed: str, source: str) -> None:
    """Refuse output that differs from what a page shows, in more than its figures."""
    alike = without_figures(printed) == without_figures(shown)
    assert alike, f"{source}\nthe page shows:\n{shown}\nprinted:\n{printed}"


def without_figures(text: str) -> str:
    """Return a text without its decimals, which differ between processors."""
    return re.sub(r"\d+\.\d+", "#", text).strip()


def say(line: str) -> None:
    """Print one line of progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
