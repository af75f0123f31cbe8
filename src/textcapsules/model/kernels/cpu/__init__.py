"""Routing compiled for the CPU by numba."""
