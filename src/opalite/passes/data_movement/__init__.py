"""Passes that fuse and move transposes, channels-last regions and permutations of rows."""
