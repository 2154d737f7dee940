"""Plans of models for described devices."""

from __future__ import annotations

from opalite.ir import DeviceInfo
from opalite.ir.device.device_descriptions import FOLDER as FIXTURES
from opalite.plan.program import Program
from opalite.run.model.imported_model import ImportedModel
from opalite.run.report.device_plan import plan_for_device

__all__ = ["FIXTURES", "plan"]


def plan(source: ImportedModel, shapes: dict[str, tuple[int, ...]], device: DeviceInfo) -> Program:
    """The one program of `source` on `device`: in fp16 if halves pay, else in fp32."""
    (program,) = plan_for_device(source, device, shapes=shapes).programs
    return program
