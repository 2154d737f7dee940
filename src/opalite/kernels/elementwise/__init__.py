"""Expressions over whole tensors, and random numbers."""
