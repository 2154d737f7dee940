"""Graph rewrites by subject, in a folder for each purpose; `pipeline.py` holds their order."""
