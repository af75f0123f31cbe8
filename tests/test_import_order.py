"""Imports point one way: a module imports only from those listed before it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import textcapsules

ROOT = Path(textcapsules.__file__).parent

# The path of the data. A package stands after the modules it imports, or before them
# if it only holds a docstring. A new module fails until it has its place here.
ORDER = """
    textcapsules
    errors notices files reading sums inputs config.checked config.sections config.run
    config
    data
    data.example data.contents data.catalogue data.canonical data.split data.read
    data.convert.tables data.convert.trees data.convert.reuters data.convert
    data.fetch data.table_text data.table_json data.table_forms data.table
    data.tickets.banks data.tickets.typos data.tickets.generate data.tickets
    data.label_names data.load
    text text.tokenize text.vocabulary text.vectors text.lexicon text.trees
    text.treebank text.encode text.batch
    model model.functional model.routing.reference
    model.routing.cpu_cache model.routing.cpu_simd model.routing.cpu_rows
    model.routing.cpu_layout
    model.routing.cpu_parts model.routing.cpu_passes model.routing.cpu_kernels
    model.routing.cpu_backward model.routing.cpu_launch model.routing.cpu
    model.routing.gpu_parts model.routing.gpu_call model.routing.gpu_conv
    model.routing.gpu_chunks model.routing.gpu_tiles model.routing.gpu_class
    model.routing.gpu model.routing.gpu_squash
    model.routing.chunked model.routing.attention model.routing model.primary_gpu
    model.layers model.embedding model.capsnet model.baselines
    model.rivals model.rivals.output model.rivals.recurrent model.rivals.forest
    model.rivals.tree_lstm model.rivals.lr_lstm model.rivals.kim model.rivals.char_cnn
    model.rivals.vd_cnn model.rivals.classic model.rivals.tfidf model.rivals.fasttext
    model.rivals.build
    model.builder model.score
    losses_gpu losses metrics calibrate classifier
    training training.resolve training.data_warnings training.memory training.prepare
    training.selection training.average training.checkpoint training.last_epoch
    training.start training.schedule
    training.steps training.loop training.fit training.lock training.folder
    training.wake training.run
    evaluate bulk
    explain explain.deferred explain.types explain.routes explain.networks
    explain.contributions
    explain.gradients explain.erasure explain.strengths explain.phrases
    explain.sources explain.texts
    explain.faithfulness explain.corpus explain.displays explain.convergence
    explain.palette explain.highlight explain.drawing explain.pictures explain.clouds
    explain.render
    report report.findings report.results report.reasons report.page demo
    bench.measure bench.cases bench.floors bench.routing bench.train bench.predict
    bench.scaling bench.many bench progress packed bulk_ray
    estimator.inputs estimator.memory estimator.stored estimator.classifier estimator
    model_card hub
    export export.graph export.capsules export.network export.onnx
    serve serve.limits serve.models serve.batching serve.metrics serve.replies
    serve.schema serve.answers serve.colours serve.guard serve.connections serve.app
    serve.run
    reproduce reproduce.published reproduce.systems reproduce.tuning reproduce.cell
    reproduce.plan reproduce.record reproduce.search reproduce.runs reproduce.coverage
    reproduce.workers reproduce.statistics reproduce.board reproduce.markup
    reproduce.compare
    reproduce.transfer reproduce.tables reproduce.plots reproduce.unpack
    reproduce.quick reproduce.visual reproduce.table6 reproduce.word_sums
    reproduce.a3 reproduce.campaign
    cli.show cli.options cli.data cli.train cli.evaluate cli.predict cli.explain
    cli.report cli.serve cli.demo cli.export cli.bench cli.reproduce cli.app cli
""".split()  # noqa: SIM905 (a page to read, not a list)
MODULES = ["textcapsules", *(f"textcapsules.{name}" for name in ORDER[1:])]


def files() -> dict[str, Path]:
    """Return every module of the package and its file."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imported(source: str, modules: set[str]) -> set[str]:
    """Return which of `modules` a source imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the whole name"
            base = node.module or ""
            for alias in node.names:  # `from package import module`, or a name in it
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in modules else base)
    return found & modules


def test_every_module_has_its_place() -> None:
    assert sorted(MODULES) == sorted(files())


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_only_from_those_before_it(name: str) -> None:
    before = MODULES[: MODULES.index(name)]
    source = files()[name].read_text(encoding="utf-8")
    later = imported(source, set(MODULES)) - set(before)
    assert not later, (
        f"{name} imports from {', '.join(sorted(later))}, which come later"
    )


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import textcapsules.data.read as read
from textcapsules.cli import train
from textcapsules.model.routing import route
if TYPE_CHECKING:
    from textcapsules.bulk import Decision
def f():
    from textcapsules import __version__, demo
"""
    assert imported(source, set(MODULES)) == {
        "textcapsules",
        "textcapsules.data.read",
        "textcapsules.cli.train",
        "textcapsules.model.routing",
        "textcapsules.bulk",
        "textcapsules.demo",
    }


@pytest.mark.parametrize("package", ["", "text", "model", "training", "serve"])
def test_package_lists_its_modules_in_this_order(package: str) -> None:
    source = (ROOT / package / "__init__.py").read_text(encoding="utf-8")
    listed = re.findall(r"`(\w+)`", ast.get_docstring(ast.parse(source)) or "")
    prefix = f"{package}." if package else ""
    inside = [
        name.removeprefix(prefix) for name in ORDER[1:] if name.startswith(prefix)
    ]
    assert listed == list(dict.fromkeys(name.split(".")[0] for name in inside if name))


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("textcapsules", "torch numpy"),
        # `textcapsules --help` must not wait for seconds.
        ("textcapsules.cli.app", "torch pooch matplotlib sklearn"),
    ],
)
def test_start_is_quick(module: str, slow: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert module in loaded
    assert not loaded & set(slow.split())
