"""The public names: typed, listed, found wherever they live, and cheap to import."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import textcapsules


@pytest.mark.parametrize("name", textcapsules.__all__)
def test_public_name_is_listed_and_is_what_its_home_has(name: str) -> None:
    assert name in dir(textcapsules)
    value = getattr(textcapsules, name)
    assert getattr(importlib.import_module(value.__module__), name) is value


def test_type_checkers_see_every_public_name_where_it_is_imported_from() -> None:
    tree = ast.parse(Path(textcapsules.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        node.module: [alias.name for alias in node.names]
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == textcapsules._HOMES
    names = [name for names in seen.values() for name in names]
    assert sorted(names) == sorted(textcapsules.__all__)


def test_explain_is_the_function_also_after_its_room_is_imported() -> None:
    code = """
import textcapsules.reasons, textcapsules.cli.explain
from textcapsules import explain
from textcapsules.reasons.texts import explain as function
assert explain is function
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("own", [None, "30"], ids=["default", "the user's own"])
def test_waiting_threads_spin_little_unless_the_user_says_otherwise(own) -> None:
    code = "import textcapsules, os; print(os.environ['GOMP_SPINCOUNT'])"
    variables = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"}
    variables |= {} if own is None else {"GOMP_SPINCOUNT": own}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    assert done.stdout.strip() == own or (own is None and int(done.stdout) <= 1000)


def test_other_names_are_refused_as_python_refuses_them() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'capsules'"):
        textcapsules.capsules  # noqa: B018
