"""How fast, beside what else: every way to route, to train a step and to predict.

All ways are timed in one run on the same numbers, since times of different runs do not
compare. Modules in the order they build on each other: `measure` (clocks, memory, what
the machine can do), `floors` (bytes and products that cannot be avoided), `cases`
(the paper's sizes and a step of them), then one file a question: `routing`, `train`,
`predict`, `scaling`, `many`.
"""

from textcapsules.lab.bench.cases import CASES, LAYERS
from textcapsules.lab.bench.many import bench_many
from textcapsules.lab.bench.speed import (
    bench_predict,
    bench_routing,
    bench_scaling,
    bench_train,
)

__all__ = [
    "CASES",
    "LAYERS",
    "bench_many",
    "bench_predict",
    "bench_routing",
    "bench_scaling",
    "bench_train",
]
