"""Resizing, sampling at grids, suppression of overlapping boxes."""
