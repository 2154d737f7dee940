"""Iterations of one program with loop-carried values on the device."""
