"""Importer functions of domain ai.onnx.ml."""
