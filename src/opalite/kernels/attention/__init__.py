"""Scaled dot-product attention: one operator, a kernel for each kind of device."""
