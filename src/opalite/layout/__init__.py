"""Where each value lies and which kernel computes each node: options, the choice, casts, precision."""
