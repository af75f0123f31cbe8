"""A trained model for others: a service, an ONNX file, a hub."""
