"""The networks of benchmarks/gpu.py: ONNX file, input, and the answer in float64."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np


def coded(name: str, batch: int) -> tuple[bytes, Any]:
    """(ONNX file, images) of the network built in code."""
    from .models import build
    from .models.feeds import random_feeds

    model = build({"vit_b_16": "vit_b16"}.get(name, name), batch)
    return model.SerializeToString(), next(iter(random_feeds(model, seed=1).values()))


@cache
def problem(name: str, batch: int, kept: Path | None = None, symbolic: bool = False) -> tuple[bytes, Any, Any, Any]:
    """(ONNX file, images as NumPy, reference answer or None, PyTorch module or None).

    kept: a folder that caches the first three. symbolic: the file's batch is open.
    """
    if find_spec("torch") is None:
        return *coded(name, batch), None, None
    from . import torch_models, torch_times

    module = torch_models.build(name)
    path = None if kept is None else kept / f"{name.replace(':', '_')}-{batch}{'-symbolic' * symbolic}.npz"
    if path is not None and path.exists():
        with np.load(path) as found:
            return found["data"].tobytes(), found["x"], found["want"], module
    x = torch_models.sample(name, batch)
    data = torch_models.export(module, x, symbolic=symbolic)
    want = torch_times.reference(torch_models.build(name), x)
    if path is not None:
        part = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(part, data=np.frombuffer(data, np.uint8), x=x.numpy(), want=want)
        part.replace(path)
    return data, x.numpy(), want, module


def difference(got: Any, want: Any) -> float:
    """Norm of the difference over the norm; 0 without a reference."""
    return 0.0 if want is None else float(np.linalg.norm(got - want) / np.linalg.norm(want))
