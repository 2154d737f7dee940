"""Settings of every test run."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("opalite", deadline=None)  # no test is timed: machines are shared
settings.load_profile("opalite")
