"""Work-groups of plans fill the waves of GPUs at sizes that nothing divides."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.models import recurrent, transformer
from benchmarks.models.net import Net

from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.run.model.imported_model import ImportedModel
from opalite.run.report.device_plan import plan_for_device

from ...helpers.lanes_busy import LEAST, asked_grids

GPUS = [name for name in description_names() if not read_description(name).is_cpu]


@cache
def networks() -> dict[str, ImportedModel]:
    """Convolutions, a transformer and a recurrent layer whose sizes are primes."""
    net = Net("convolutions")
    x = net.relu(net.conv(net.input("x", (1, 3, 113, 131)), 13, 3, stride=2))
    x = net.relu(net.conv(net.relu(net.conv(x, 13, 3, groups=13)), 37))
    x = net.max_pool(net.add(net.relu(net.conv(x, 37, 3)), x), 2, 2)
    y = net.op("Softmax", net.conv_transpose(x, 17, 2, 2), axis=1)
    models = {"convolutions": net.model(y, net.op("GlobalAveragePool", x))}
    models["transformer"] = transformer.minilm(1, sequence=37, width=39, heads=3, layers=1, words=101)
    models["recurrent"] = recurrent.lstm_tagger(1, sequence=37, words=101, width=41, hidden=53)
    return {name: ImportedModel(model.SerializeToString()) for name, model in models.items()}


@pytest.mark.parametrize("device", GPUS)
def test_waves_are_filled_at_prime_sizes(device: str) -> None:
    info = read_description(device)
    for name, model in networks().items():
        with asked_grids() as asked:
            launches = plan_for_device(model, info).launches
        assert asked.share(launches, info) >= LEAST, (name, asked.worst(launches, info))
