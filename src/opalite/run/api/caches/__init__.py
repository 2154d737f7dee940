"""State between runs: KV caches and recurrent states."""
