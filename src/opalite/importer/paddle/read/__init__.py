"""Readers of Paddle's files: programs (`.pdmodel`, PIR `.json`) and parameters (`.pdiparams`)."""
