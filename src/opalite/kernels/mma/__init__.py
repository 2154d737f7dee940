"""What kernels for NVIDIA's matrix units share: tiles, their costs, and the instructions."""
