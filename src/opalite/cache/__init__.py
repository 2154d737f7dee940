"""Persistent caches: cache folder, program store, keys, locks, hit counters. Needs no OpenCL."""
