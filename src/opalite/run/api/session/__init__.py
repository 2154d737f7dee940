"""InferenceSession and the functions that open, compile and query it."""
