"""Routing compiled for the CPU by numba.

`cache`: machine code kept between processes. `call`: what a kernel is called with, and
the threads it runs on. `simd`: vectors in registers. `maths`: products, norms and
squashes. `forward`, `backward`: the two passes. `route`: both as a function of tensors.
"""
