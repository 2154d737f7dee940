"""Layout assignment and kernel selection: candidates, choice, casts, precision."""
