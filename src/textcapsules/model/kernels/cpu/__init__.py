"""Routing compiled for the CPU by numba.

`cache`: machine code kept between processes. `call`: what a kernel is called with, and
the threads it runs on. `link`: many functions as one kernel. `simd`: vectors in
registers. `maths`: products, norms and squashes. `forward`, `backward`: the two passes.
`route`: both as a function of tensors.
"""
