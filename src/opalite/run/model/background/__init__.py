"""Compilation while runs go on: generic programs first, specialised ones when they are ready."""
