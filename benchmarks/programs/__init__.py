"""What is compiled for well-known models and devices, kept as text, and compared with another checkout's."""
