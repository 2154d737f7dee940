"""A Program on a device: built once, then run by a strategy."""
