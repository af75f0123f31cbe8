"""How `make docs` builds the site: Sphinx, with MyST for Markdown and the theme Furo.

The pages are plain Markdown that reads well without the site. What they lack there is
added while they are read: the table of contents (to README.md, the first page), and the
reference of the public names, from their docstrings (to docs/api.md). Formulas become
MathML, so that no page loads a script from elsewhere. Warnings are errors: a broken
link, or a page that the table of contents does not name, fails the build.
"""

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import textcapsules  # noqa: E402

project = "textcapsules"
author = "textcapsules contributors"
version = release = textcapsules.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "reproduction/*.md", "src/**/README.md"]
exclude_patterns = [".venv", "runs", "site"]
CONTENTS = {
    "Start": """
        docs/quick-start docs/your-own-data docs/several-labels docs/refusal
        docs/review
        docs/choosing-a-model docs/README
    """,
    "Use": """
        docs/explanations docs/gallery docs/encoders docs/estimator docs/serving
        docs/export docs/presets
    """,
    "Build": """
        docs/building-blocks docs/api docs/routing
        src/textcapsules/model/routing/README docs/map
        CONTRIBUTING CHANGELOG SECURITY
    """,
    "Results": """
        docs/results docs/speed docs/benchmarks docs/corpora docs/reproduction
        reproduction/FINDINGS reproduction/PROTOCOL reproduction/TABLES reproduction/A3
    """,
}
# Documented after the public names: what their methods return.
RETURNED = [
    "textcapsules.model.classifier.Prediction",
    "textcapsules.model.classifier.Labels",
    "textcapsules.inference.recalibrate.Recalibration",
    "textcapsules.inference.recalibrate.Estimate",
    "textcapsules.reasons.explanation.Explanation",
    "textcapsules.reasons.explanation.LabelExplanation",
    "textcapsules.reasons.explanation.Phrase",
    "textcapsules.model.routing.reference.Routed",
]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
napoleon_attr_annotations = False
napoleon_use_ivar = True  # a property may be listed under Attributes, too
default_role = "literal"  # `name` in a docstring
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"textcapsules {version}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # it is fetched, which files on a disk forbid
html_show_sphinx = False
html_math_renderer = "mathml"


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the table of contents to the first page, and the reference to its page."""
    if page == root_doc:
        for caption, pages in CONTENTS.items():
            lines = [":hidden:", f":caption: {caption}", "", *pages.split()]
            source[0] += fenced("toctree", lines)
    elif page == "docs/api":
        # In the order in which the page lists them.
        names = sorted(
            textcapsules.__all__, key=lambda name: source[0].find(f"`{name}`")
        )
        names = [f"textcapsules.{name}" for name in names]
        source[0] += fenced("eval-rst", map(directive, [*names, *RETURNED]))


def fenced(name: str, lines: Iterable[str]) -> str:
    """Return a directive of MyST."""
    return "\n".join(["", f"```{{{name}}}", *lines, "```", ""])


def directive(name: str) -> str:
    """Return what documents a class with its members, or a function."""
    _, _, last = name.rpartition(".")
    kind = "class" if last[0].isupper() else "function"
    return f".. auto{kind}:: {name}\n" + "   :members:\n" * (kind == "class")


def shorten_arrays(
    app: Sphinx,
    kind: str,
    name: str,
    value: object,
    options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Write an array's type as a word: its parameters say nothing here."""
    array = r"~?numpy\.ndarray\[tuple\[.*?\], ~?numpy\.dtype\[.*?\]\]"
    signature = signature and re.sub(array, "ndarray", signature)
    return signature, returned and re.sub(array, "ndarray", returned)


def skip_requests(
    app: Sphinx, kind: str, name: str, value: object, skip: bool, options: object
) -> bool | None:
    """Leave out the methods that scikit-learn writes for its metadata routing."""
    return True if name.endswith("_request") else None


def write_formula(writer: HTML5Translator, node: Any) -> None:
    """Write a formula as MathML, which browsers show without a script."""
    block = isinstance(node, nodes.math_block)
    formula = convert(node.astext().strip(), display="block" if block else "inline")
    writer.body.append(f"<div class='formula'>{formula}</div>" if block else formula)
    raise nodes.SkipNode


def copy_first_page(app: Sphinx, error: Exception | None) -> None:
    """Let README.html be index.html, too: a folder's address shows it."""
    if error is None:
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-signature", shorten_arrays)
    app.connect("autodoc-skip-member", skip_requests)
    app.connect("build-finished", copy_first_page)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
