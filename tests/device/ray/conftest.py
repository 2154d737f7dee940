"""A real cluster of two nodes on this machine, where Ray is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import opalite.ray

from ...helpers.small_models import classifier


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes of two cores and one device each; the driver has none. Workers write no logs here."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'opalite-cl[test-ray]'")
    from ray.cluster_utils import Cluster

    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    node = {"num_cpus": 2, "object_store_memory": 200 << 20, "resources": opalite.ray.resources()}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def model() -> bytes:
    found: bytes = classifier().SerializeToString()
    return found
