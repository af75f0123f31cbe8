"""Compiled routing: `cpu` by numba, `gpu` by Triton.

Each has a module `route` with a function like `routing.route_windows`, and `supports`,
which says why it cannot route some tensors. Both compute without votes and without
logits (docs/routing.md), add in a fixed order, and are tested against
`routing.reference` in float64, outputs and every gradient.
"""
