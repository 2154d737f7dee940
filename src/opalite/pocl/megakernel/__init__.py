"""Megakernels on PoCL: many launches as one kernel, whose workers and the calling thread execute a table of steps."""
