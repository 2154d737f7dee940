"""Passes that recognize attention and rotary embeddings, and that let attention read strided views and caches."""
