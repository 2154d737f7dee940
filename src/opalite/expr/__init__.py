"""Elementwise expressions: data structure, function table, tracing and text form."""
