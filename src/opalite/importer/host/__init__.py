"""Operators that run on the host: in NumPy, or by the reference implementations of the onnx package."""
