"""A trained model for programs that do not have this package.

`graph` is pen and paper for an ONNX graph; `capsules` writes squashing and routing on
it, `network` the whole of a capsule network; `onnx` compares what came out with the
network it came from, and puts the files a program needs side by side.
"""
