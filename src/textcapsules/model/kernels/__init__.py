"""Compiled routing: `cpu` by numba, `gpu` by Triton."""
