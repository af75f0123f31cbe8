"""Experiments: the demonstration, the paper's tables, the benchmarks."""
