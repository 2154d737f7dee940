"""Operators that run on the host, in NumPy or by the onnx package's reference implementations."""
