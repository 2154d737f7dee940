"""Compilation of graphs, and the background jobs that replace executables by better ones."""
