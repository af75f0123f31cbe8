"""Routing and the layers around it compiled for a GPU by Triton.

`maths`: device functions that all kernels share. `call`: the tensors and sizes of a
call, and the launches that all regimes share. `windows`: short windows, one program
each. `chunks`: long windows, many programs each. `route`: all of them as one function
of tensors. `capsules`: primary capsules and the squash. `losses`: the margin loss.
"""
