"""What stands behind a session: an ONNX model or a bundle, planned and built for the shapes that arrive."""
