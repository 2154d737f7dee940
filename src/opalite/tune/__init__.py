"""Tuning: work-group generators, parameter spaces, measurement, search, the tuning database."""
