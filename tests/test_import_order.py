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
    base base.collector base.errors base.files base.sums base.checks base.progress
    config.options config.sections config.run config
    data data.example data.catalogue data.split data.corpora data.convert
    data.fetch data.table_formats data.table data.reviews data.tickets.generate
    data.tickets data.off_topic data.load
    text text.tokenize text.function_words text.spelling text.vocabulary text.pieces
    text.piece_vectors text.state_store text.bert text.encoder_files text.encoder
    text.encoder_training text.vectors text.lexicon text.trees text.encode text.outside
    text.batch
    model model.functional model.routing.reference model.routing.chunked
    model.routing.attention model.kernels model.kernels.cpu model.kernels.cpu.link
    model.kernels.cpu.cache model.kernels.cpu.call model.kernels.cpu.simd
    model.kernels.cpu.maths model.kernels.cpu.forward model.kernels.cpu.backward
    model.kernels.cpu.route
    model.kernels.gpu model.kernels.gpu.maths model.kernels.gpu.call
    model.kernels.gpu.compile model.kernels.gpu.windows model.kernels.gpu.chunks
    model.kernels.gpu.route model.kernels.gpu.capsules model.kernels.gpu.losses
    model.routing
    model.layers.local model.layers.routed model.layers model.word_scores
    model.network model.capsnet
    model.baselines model.baselines.pooled model.baselines.recurrent
    model.baselines.tree_lstm model.baselines.convolutional model.baselines.classic
    model.baselines.build model.builder model.captured model.score model.classifier
    reasons.explanation reasons.couplings reasons.word_contributions reasons.methods
    reasons.attributions reasons.samples reasons.strengths reasons.phrases
    reasons.trials reasons.changes reasons.texts reasons.faithfulness reasons.choice
    reasons.corpus reasons.routing_inspection reasons
    training training.losses training.metrics training.calibrate training.resolve
    training.encoder_choice training.machine training.prepare training.join
    training.selection training.outside training.optimise training.checkpoint
    training.start training.steps training.ahead training.loop training.contrast
    training.views training.words training.folder training.run
    inference inference.evaluate inference.suspects inference.compare.rivals
    inference.compare.judge inference.compare.time_plan inference.compare
    inference.recalibrate inference.review inference.bulk inference.bulk_ray
    inference.estimator inference.label_pairs inference.reliability inference.rival
    inference.data_card inference.report
    draw draw.palette draw.pictures draw.pages draw.slide draw.report
    deploy deploy.service deploy.service.limits deploy.service.batching
    deploy.service.metrics deploy.service.schema deploy.service.answers
    deploy.service.guard deploy.service.connections deploy.service.review
    deploy.service.app deploy.service.run deploy.onnx deploy.onnx.graph
    deploy.onnx.encoder deploy.onnx.words deploy.onnx.network deploy.onnx.export
    deploy.hub
    lab lab.demo lab.bench.measure lab.bench.cases lab.bench.speed lab.bench.many
    lab.bench lab.paper lab.paper.published lab.paper.systems lab.paper.heads
    lab.paper.plan lab.paper.place lab.paper.records lab.paper.regression lab.paper.runs
    lab.paper.workers lab.paper.figures lab.paper.tables lab.paper.displays
    lab.paper.table6 lab.paper.table_a3 lab.paper.campaign
    cli.show cli.options cli.inputs cli.data cli.train cli.compare cli.suspects
    cli.evaluate cli.predict cli.explain cli.calibrate cli.review cli.report cli.serve
    cli.demo cli.export cli.bench cli.reproduce cli.app cli __main__
""".split()  # noqa: SIM905 (a page to read, not a list)
# The only imports against the order. Methods that show or explain a value import what
# does it; the front door tells type checkers where its names live.
EXCEPTIONS = {
    "textcapsules": set(textcapsules._HOMES),
    "textcapsules.model.classifier": {
        "textcapsules.draw.pages",
        "textcapsules.inference.recalibrate",
        "textcapsules.reasons.explanation",
        "textcapsules.reasons.texts",
    },
    "textcapsules.reasons.explanation": {
        "textcapsules.draw.pages",
        "textcapsules.draw.slide",
    },
}
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
    later = imported(source, set(MODULES)) - set(before) - EXCEPTIONS.get(name, set())
    assert not later, (
        f"{name} imports from {', '.join(sorted(later))}, which come later"
    )


def test_only_its_verbs_import_the_lab() -> None:
    importers = {
        name.removeprefix("textcapsules.")
        for name, path in files().items()
        if "textcapsules.lab" not in name
        and any(
            module.startswith("textcapsules.lab")
            for module in imported(path.read_text(encoding="utf-8"), set(MODULES))
        )
    }
    assert importers == {"cli.bench", "cli.demo", "cli.reproduce"}


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import textcapsules.data.corpora as corpora
from textcapsules.cli import train
from textcapsules.model.routing import route
if TYPE_CHECKING:
    from textcapsules.inference.bulk import Decision
def f():
    from textcapsules.lab import demo
"""
    assert imported(source, set(MODULES)) == {
        "textcapsules.data.corpora",
        "textcapsules.cli.train",
        "textcapsules.model.routing",
        "textcapsules.inference.bulk",
        "textcapsules.lab.demo",
    }


@pytest.mark.parametrize("package", ["", "data", "text", "model", "training"])
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
        # Nor a prediction for more than torch.
        (
            "textcapsules.model.classifier",
            "pandas pyarrow numba scipy sklearn matplotlib jinja2 transformers",
        ),
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


TESTS = Path(__file__).parent
MIRRORED = [
    path.relative_to(TESTS)
    for path in sorted(TESTS.rglob("test_*.py"))
    if path.parent != TESTS and "faults" not in path.parts
]


@pytest.mark.parametrize("path", MIRRORED, ids=str)
def test_tests_lie_where_their_module_does(path: Path) -> None:
    """The tests of a/b.py are tests/a/test_b.py, or tests/a/test_b_<aspect>.py."""
    folder = ROOT / path.parent
    modules = {folder.name, *(entry.stem for entry in folder.iterdir())}
    name = path.stem.removeprefix("test_")
    assert any(name == each or name.startswith(f"{each}_") for each in modules)
