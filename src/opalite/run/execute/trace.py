"""Timing: where the wall-clock time of one run went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Timing:
    """Seconds of one `run`: import and planning, tuning, program builds, transfers, compute, host operators, total."""

    import_s: float = 0.0
    tune_s: float = 0.0
    build_s: float = 0.0
    upload_s: float = 0.0
    compute_s: float = 0.0
    download_s: float = 0.0
    host_s: float = 0.0
    total_s: float = 0.0
    first_s: float = 0.0  # total of the session's first run

    def add(self, other: Timing) -> None:
        """Add the parts of a segment's run."""
        self.build_s += other.build_s
        self.upload_s += other.upload_s
        self.compute_s += other.compute_s
        self.download_s += other.download_s
        self.host_s += other.host_s
