"""Precision 'auto': half precision where measurements show that it is accurate and faster."""
