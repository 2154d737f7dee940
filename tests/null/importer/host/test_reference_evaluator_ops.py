"""Operators left to onnx's reference evaluator are logged and listed in the documents."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import onnx.defs
import onnx.helper as oh
import pytest

from opalite.importer.host import onnx_reference
from opalite.importer.host.numpy_ops import is_native
from opalite.importer.host.onnx_reference import REFERENCE_OPS, host_reason, run_host
from opalite.importer.walk.control_flow import CONTROL
from opalite.importer.walk.node_context import find_handler
from opalite.ops.host import BY_PYTHON

DOCS = Path(__file__).parents[4] / "docs" / "placement.md"
NO_ONE = {"Gradient"}  # which the evaluator has not either


def test_every_operator_has_code_here_or_a_reason() -> None:
    for schema in onnx.defs.get_all_schemas_with_history():
        name = schema.name
        described = schema.has_function or schema.has_context_dependent_function or name == "Constant"
        here = find_handler(name, schema.domain, schema.since_version) or is_native(name, schema.domain)
        if not (schema.deprecated or described or here or name in CONTROL or name in NO_ONE):
            assert (schema.domain, name) in REFERENCE_OPS, f"{name} of opset {schema.since_version}"


def test_the_documents_have_the_same_list() -> None:
    text = DOCS.read_text().split("### Operators left to onnx's reference evaluator")[1]
    rows = re.findall(r"^\| ([A-Z][\w, ]*) \| (.*) \|$", text, re.MULTILINE)
    told = {name: why for names, why in rows for name in names.split(", ")}
    assert told == {name: why for (_, name), why in REFERENCE_OPS.items()}


def test_the_log_says_once_that_python_computes(caplog: pytest.LogCaptureFixture) -> None:
    onnx_reference._warn_once.cache_clear()
    onnx_reference._find_step.cache_clear()
    node = oh.make_node("Dropout", ["x", "ratio", "train"], ["y"], seed=1)
    inputs = [np.ones(3, np.float32), np.float32(0.5), np.array(True)]
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b"):
            node.name = name
            run_host("Dropout", "", 13, node.SerializeToString(), inputs)
    assert len(caplog.records) == 1
    assert "Dropout of domain 'ai.onnx': Python computes it" in caplog.text


def test_reasons_say_who_computes() -> None:
    assert host_reason("Dropout", "").startswith(BY_PYTHON)
    assert host_reason("NotYetThere", "").startswith(BY_PYTHON)
    for name in ("SequenceInsert", "Unique", "Optional", "Identity"):
        assert host_reason(name, "").startswith("NumPy")
