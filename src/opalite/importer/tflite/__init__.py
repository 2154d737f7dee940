"""Importer functions of TensorFlow Lite's operators, one for each; `read/` reads the files."""
