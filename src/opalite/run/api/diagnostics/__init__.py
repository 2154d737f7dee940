"""Logs, traces and statistics of sessions."""
