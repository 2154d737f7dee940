"""Random graphs in TensorFlow Lite's format, compared with LiteRT's reference kernels: see docs/fuzzing.md."""
