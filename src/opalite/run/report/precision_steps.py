"""Precision steps: policies from all nodes in half to all in float32, and the error, time and bytes of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cl.runtime import find_runtime
from ...errors import BundleError, InputError
from ...ir.precision import Precision, PrecisionPolicy
from ...plan.bundle.bundle import is_bundle
from ..model.background.graph_compiler import Compiler
from ..model.compile_options import CompileOptions
from ..model.imported_model import ImportedModel
from ..precision.find_mixed_policy import ranked_policies
from .device_plan import plan_for_device

GROUPS = 8


@dataclass(frozen=True)
class PrecisionStep:
    """One policy. error: of the outputs against float32, as a share of the largest magnitude, measured on the device.

    seconds: expected of a run, and nbytes: of tensors and weights on the device, both by the plan; None where shapes
    depend on data, so that nothing is planned ahead.
    """

    policy: PrecisionPolicy
    error: float
    seconds: float | None = None
    nbytes: int | None = None


def precision_steps(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    device: str | None = None,
    memory: str = "auto",
    precision: Precision = Precision.FP16,
    groups: int = GROUPS,
    on_step: Callable[[str], None] | None = None,
) -> list[PrecisionStep]:
    """Steps from `precision` in all nodes to float32 in all, on `feeds`.

    groups: of neighbouring nodes, which change their precision together; twice as many runs measure them. on_step:
    called with a description of each run. Raises InputError for a bundle and for precision fp32.
    """
    if not isinstance(model, bytes) and is_bundle(model):
        raise InputError(f"{os.fspath(model)} is a bundle, whose nodes are no longer known; give the model's own file")
    if precision not in (Precision.FP16, Precision.FP16_FAST):
        raise InputError("steps go from half precision to fp32; give fp16 or fp16_fast")
    imported, compiler = ImportedModel(model), Compiler(find_runtime(device), CompileOptions(memory=memory))
    ranked = ranked_policies(compiler, imported, feeds, precision, groups, on_step)
    shapes = {name: np.shape(a) for name, a in feeds.items()}
    steps = []
    for policy, error in ranked:
        try:
            plan = plan_for_device(imported.fresh(), compiler.rt.info, shapes=shapes, precision=policy, memory=memory)
        except BundleError:
            steps.append(PrecisionStep(policy, error))
            continue
        m = plan.memory
        nbytes = m.totals.get(m.chosen, 0) + m.images + m.static
        steps.append(PrecisionStep(policy, error, plan.seconds, nbytes))
    return steps


def policy_for(steps: Sequence[PrecisionStep], tolerance: float) -> PrecisionStep:
    """The step that keeps the tolerance in the least time, or with the fewest nodes in float32. `steps` end in fp32."""
    good = [s for s in steps if s.error <= tolerance] or [steps[-1]]
    return min(good, key=lambda s: (s.seconds or 0.0, steps.index(s)))
