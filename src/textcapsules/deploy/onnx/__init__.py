"""A trained network as an ONNX file, for programs without this package.

`graph` writes ONNX operations one by one, squashing and routing among them; `encoder`
writes a pretrained encoder, sentence by sentence; `network` writes a whole network with
both; `export` compares the result with the network, and writes the files that a program
needs.
"""
