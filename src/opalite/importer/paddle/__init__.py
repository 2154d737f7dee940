"""Importer functions of Paddle's operators, one for each; `read/` reads the files."""
