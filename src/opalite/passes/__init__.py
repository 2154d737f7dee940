"""Graph rewrites, one a file; pipeline.py holds their order."""
