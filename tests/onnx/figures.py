"""Plugin: counts the backend suite's results, prints the two figures, fails the run if too few nodes run on the device.

`tests/conftest.py` registers it: with pytest-xdist, the process that prints loads no conftest further down.
"""

from __future__ import annotations

from collections import Counter

import pytest

NEED_ON_DEVICE = 0.80
NEED_PASSED = 0.985
_counts: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" or "test_backend_suite.py::test_case" not in report.nodeid:
        if report.when == "setup" and report.skipped and "test_backend_suite.py::test_case" in report.nodeid:
            _counts["excluded"] += 1
        return
    _counts["cases"] += 1
    _counts["passed"] += report.passed
    for key, value in report.user_properties:
        if key == "onnx_float32":
            _counts[f"float32 {value}"] += 1


def _figures() -> tuple[float, float]:
    total = _counts["cases"]
    floats = _counts["float32 device"] + _counts["float32 host"]
    return _counts["passed"] / max(total, 1), _counts["float32 device"] / max(floats, 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _counts["cases"] < 1000:
        return
    passed, device = _figures()
    terminalreporter.write_line(
        f"onnx backend suite: {_counts['passed']} of {_counts['cases']} inference cases ({100 * passed:.1f} %); "
        f"float32 node cases without a host operator: {_counts['float32 device']} of "
        f"{_counts['float32 device'] + _counts['float32 host']} ({100 * device:.1f} %)"
    )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    passed, device = _figures()
    if _counts["cases"] >= 1000 and (passed < NEED_PASSED or device < NEED_ON_DEVICE) and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
