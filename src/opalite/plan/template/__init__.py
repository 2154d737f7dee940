"""Program templates: programs whose sizes are symbolic expressions."""
