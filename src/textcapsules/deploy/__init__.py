"""A trained model for others: `service` (HTTP and a page), `onnx` (a file), `hub`."""
