"""Generated OpenCL C: expressions, and the epilogues of other kernels."""
