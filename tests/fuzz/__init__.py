"""Random graphs beside onnxruntime: see docs/fuzzing.md."""
