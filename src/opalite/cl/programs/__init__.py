"""OpenCL programs: compilation, worker processes that compile, the program cache."""
