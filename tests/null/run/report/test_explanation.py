"""What explanations say of plans for devices that are not here."""

from __future__ import annotations

from pathlib import Path

from opalite.run.report.device_plan import plan_for_device

from ....helpers.small_models import classifier, save


def test_candidates_that_only_tuning_may_choose_have_no_time(tmp_path: Path) -> None:
    plan = plan_for_device(save(classifier(), tmp_path / "net.onnx"), "adreno_640", shapes={"x": (1, 3, 16, 16)})
    explanation = plan.explain()
    texts = [explanation.details(n.name) for n in explanation.nodes if n.candidates]
    assert any("only if tuning measures it" in text for text in texts)
    assert not any("inf us" in text for text in texts)
