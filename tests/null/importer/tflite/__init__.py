"""Importers of TensorFlow Lite's operators, compared with LiteRT."""
