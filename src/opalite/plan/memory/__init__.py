"""Memory planning: liveness, aliasing, the arena, verification."""
