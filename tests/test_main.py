"""`python -m textcapsules` is the command line."""

import subprocess
import sys


def test_python_m_runs_the_command_line():
    command = [sys.executable, "-m", "textcapsules", "data", "show", "no-such-corpus"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("textcapsules: ")
    assert "no-such-corpus" in done.stderr
    assert "Traceback" not in done.stderr
