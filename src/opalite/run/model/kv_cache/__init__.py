"""Runs whose KV caches stay on the device and grow in place."""
