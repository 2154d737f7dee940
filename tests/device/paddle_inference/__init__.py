"""Paddle Inference's calls."""
