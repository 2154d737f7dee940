"""Reports on models and runs: explanation, profile, verification, statistics."""
