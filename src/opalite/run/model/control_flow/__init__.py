"""Models with If, Loop and Scan, and operators that run on the host."""
