"""Elementwise expressions: what they are (core), their functions, building them by tracing, and their text form."""
