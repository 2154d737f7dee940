"""Plans of ten models for every device description, as files: a change of the planner shows as a diff.

python -m tests.plans.record [MODEL...]    # writes tests/plans/MODEL.json anew
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from opalite.cli.compare import plans_text
from opalite.ir.device.device_descriptions import description_names
from opalite.run.model.imported_model import ImportedModel
from opalite.run.report.device_plan import DevicePlan, plan_for_device

FOLDER = Path(__file__).parent
MODELS = Path(__file__).parents[3] / "shared" / "models"
NAMES = (
    "mnist_cntk",
    "superres_d2s",
    "blazeface_front",
    "magika_v1",
    "resnet20_cifar",
    "dtln_1",
    "mobilenetv2_fp32",
    "mobilenetv2_qdq_int8",
    "squeezenet10_fp32",
    "tashkeel_transformer",
)


def plans(name: str) -> Iterator[tuple[str, DevicePlan]]:
    """The plans of a model, by the name of the description."""
    imported = ImportedModel(MODELS / f"{name}.onnx")
    for device in description_names():
        yield device, plan_for_device(imported, device)


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        text = plans_text({device: plan.to_raw() for device, plan in plans(name)})
        (FOLDER / f"{name}.json").write_text(text)
