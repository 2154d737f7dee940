"""Helpers that importer functions of several domains share."""
