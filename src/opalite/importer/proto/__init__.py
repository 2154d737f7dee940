"""ONNX messages as plain Python data and back: decoding, checking, schemas, function bodies, a caller's edits."""
