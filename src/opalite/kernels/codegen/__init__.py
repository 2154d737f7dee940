"""OpenCL C made of expressions: the code itself, and the epilogues that other kernels end with."""
