"""NVIDIA's intermediate language, in which its driver gives programs: read, and linked into one kernel."""
