"""Tracked benchmarks: models built in code, peers' adapters, and the comparison that runs them."""
