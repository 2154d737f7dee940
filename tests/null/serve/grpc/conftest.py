"""A gRPC front before a Server whose models are functions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opalite.serve.grpc.grpc_server import GrpcFront, GrpcSettings
from opalite.serve.run_servers import serving
from opalite.serve.wire.client_limits import GrpcLimits

from ....helpers.serving import Double

LIMITS = GrpcLimits(message_bytes=1 << 22, elements=1 << 16, tensors=64)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Double, str]]:
    """The double, and where it answers as clients write it."""
    double = Double(slow_s=0.001)
    with serving(lambda: double, [GrpcFront(GrpcSettings(port=0, limits=LIMITS))]) as addresses:
        yield double, addresses[0].removeprefix("grpc://")
