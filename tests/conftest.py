"""Settings of every test run."""

from __future__ import annotations

import os

from hypothesis import settings

from .build_cache import use_own_cache

use_own_cache()

# Every test plans its models anew; those of the plan cache switch it on.
os.environ["OPALITE_PLANS"] = "0"

# What tests look at are the programs made for a model; those of tiers switch the general ones on.
os.environ["OPALITE_TIERS"] = "0"

# Several test processes share the cores, so the system places their threads.
os.environ.setdefault("POCL_AFFINITY", "0")

pytest_plugins = ["tests.onnx.figures"]

settings.register_profile("opalite", deadline=None)  # no test is timed: machines are shared
settings.load_profile("opalite")
