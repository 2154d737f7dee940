"""Importer functions of the default domain."""
