"""PTX, NVIDIA's intermediate language: parsing of kernels, and linking of several into one persistent kernel."""
