"""Passes that remove work: common subexpressions, constants, nodes without effect, values that nobody reads."""
