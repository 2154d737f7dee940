"""Device memory: buffers, images, the arena, copies between host and device."""
