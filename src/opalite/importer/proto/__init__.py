"""ONNX messages as Python data: decoding, checks, schemas, function bodies, edits by the caller, and encoding."""
