"""Graph rewrites, one a file, in a folder for each purpose; `pipeline.py` holds their order."""
