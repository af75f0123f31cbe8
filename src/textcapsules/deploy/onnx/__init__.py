"""A trained capsule network as an ONNX file, for programs without this package.

`graph` writes ONNX operations one by one, squashing and routing among them; `network`
writes a whole capsule network with it; `export` compares the result with the network,
and writes the files that a program needs.
"""
