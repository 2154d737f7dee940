"""Settings of every test run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from opalite.pocl.core_affinity import core_limit

from .build_cache import folder_within, use_own_cache

use_own_cache()

# Every test plans its models anew; those of the plan cache switch it on.
os.environ["OPALITE_PLAN_CACHE"] = "0"

# What tests look at are the programs made for a model; those of tiers switch the general ones on.
os.environ["OPALITE_TIERS"] = "0"

# Several test processes share the cores, so the system places their threads.
os.environ.setdefault("POCL_AFFINITY", "0")

pytest_plugins = ["tests.onnx.figures"]

settings.register_profile("opalite", deadline=None)  # no test is timed: machines are shared
settings.load_profile("opalite")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Of `-n auto`: one more than cores, since a tenth of a test process's time is spent waiting for others."""
    return (core_limit() or os.cpu_count() or 1) + 1


@pytest.fixture(scope="module", autouse=True)
def _no_tuning_of_other_modules(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the tests of a module measure and choose changes no plan of another's: it lies in its own folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPALITE_CACHE_DIR", str(folder_within(request.module.__name__)))
        yield
