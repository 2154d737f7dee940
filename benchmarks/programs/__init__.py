"""Records the compiled programs of well-known models and devices as text, and compares them between checkouts."""
