"""Kernels for scaled dot-product attention, one or more for each kind of device."""
