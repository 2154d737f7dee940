"""Memory of an executable's tensors, and copies between host and device."""
