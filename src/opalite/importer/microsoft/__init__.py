"""Importer functions of domain com.microsoft."""
