"""run/execute/run_trace.py: sums of a run's parts."""

from __future__ import annotations

from opalite.run.execute.run_trace import COUNTS, SECONDS, RunTrace


def test_parts_add_up() -> None:
    whole, part = RunTrace(strategy="queue", tier="generic"), RunTrace(strategy="megakernel", tier="optimized")
    for number, name in enumerate((*SECONDS, *COUNTS)):
        setattr(whole, name, 100 + number)
        setattr(part, name, 1000 * (number + 1))
    whole.add(part)
    for number, name in enumerate((*SECONDS, *COUNTS)):
        assert getattr(whole, name) == 100 + number + 1000 * (number + 1), name
    assert (whole.strategy, whole.tier) == ("queue+megakernel", "generic+optimized")
