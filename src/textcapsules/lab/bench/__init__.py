"""The benchmarks: every way to route, to train a step and to predict, timed.

One run times all ways on the same numbers, since times of different runs cannot be
compared. `measure` has clocks and the machine's rates, `cases` the sizes that are timed
and the least time each needs, `speed` and `many` the benchmarks.
"""

from textcapsules.lab.bench.cases import BENCH_CASES, BENCH_LAYERS
from textcapsules.lab.bench.many import bench_many
from textcapsules.lab.bench.speed import (
    bench_predict,
    bench_routing,
    bench_scaling,
    bench_train,
)

__all__ = [
    "BENCH_CASES",
    "BENCH_LAYERS",
    "bench_many",
    "bench_predict",
    "bench_routing",
    "bench_scaling",
    "bench_train",
]
