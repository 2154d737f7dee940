"""Passes that fuse nodes into one kernel: folding into convolutions, elementwise chains, epilogues, norms."""
