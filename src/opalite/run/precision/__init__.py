"""Precision 'auto': which nodes may be stored in half, found by measurement and kept."""
