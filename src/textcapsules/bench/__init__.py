"""How fast, beside what else: every way to route, to train a step and to predict.

All ways are timed in one run on the same numbers, since times of different runs do not
compare. Modules in the order they build on each other: `measure` (clocks, memory, what
the machine can do), `floors` (bytes and products that cannot be avoided), `cases`
(the paper's sizes and a step of them), then one file a question: `routing`, `train`,
`predict`, `scaling`, `many`.
"""

from textcapsules.bench.cases import CASES, LAYERS
from textcapsules.bench.many import bench_many
from textcapsules.bench.predict import bench_predict
from textcapsules.bench.routing import bench_routing
from textcapsules.bench.scaling import bench_scaling
from textcapsules.bench.train import bench_train

__all__ = [
    "CASES",
    "LAYERS",
    "bench_many",
    "bench_predict",
    "bench_routing",
    "bench_scaling",
    "bench_train",
]
