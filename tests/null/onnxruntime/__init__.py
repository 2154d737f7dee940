"""Opalite in place of onnxruntime."""
