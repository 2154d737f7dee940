"""passes/cleanup/share_concat_prefix.py: a Concat reuses a shorter Concat of the same first inputs."""

from __future__ import annotations

import pytest

from opalite.ir import DeviceInfo
from opalite.ir.device.device_family import SLOW_SUB_BUFFERS
from opalite.passes.cleanup.share_concat_prefix import share_concat_prefix

from ..texts import Case, check

COPIES = share_concat_prefix(DeviceInfo(quirks=(SLOW_SUB_BUFFERS,)))
NESTS = share_concat_prefix(DeviceInfo())

DENSE = """
    graph g(%a: f32[1,4,3], %b: f32[1,2,3], %c: f32[1,2,3], %d: f32[1,1,3]) {
        %p = Concat(%a, %b) {axis=1}
        %q = Concat(%a, %b, %c) {axis=1}
        %r = Concat(%a, %b, %c, %d) {axis=1}
        return %p, %q, %r
    }
"""

CASES = (
    Case(
        "share_concat_prefix",
        "each layer of a dense block reads the last joint",
        COPIES,
        DENSE,
        """
        graph g(%a: f32[1,4,3], %b: f32[1,2,3], %c: f32[1,2,3], %d: f32[1,1,3]) {
            %p = Concat(%a, %b) {axis=1}
            %q = Concat(%p, %c) {axis=1}
            %r = Concat(%q, %d) {axis=1}
            return %p, %q, %r
        }
        """,
    ),
    Case("share_concat_prefix", "what is written in place has nothing to copy", NESTS, DENSE),
    Case(
        "share_concat_prefix",
        "the longest beginning counts, whatever the order of the nodes",
        COPIES,
        """
        graph g(%a: f32[1,4,3], %b: f32[1,2,3], %c: f32[1,2,3], %d: f32[1,1,3]) {
            %q = Concat(%a, %b, %c) {axis=1}
            %p = Concat(%a, %b) {axis=1}
            %r = Concat(%a, %b, %c, %d) {axis=1}
            return %p, %q, %r
        }
        """,
        """
        graph g(%a: f32[1,4,3], %b: f32[1,2,3], %c: f32[1,2,3], %d: f32[1,1,3]) {
            %q = Concat(%a, %b, %c) {axis=1}
            %p = Concat(%a, %b) {axis=1}
            %r = Concat(%q, %d) {axis=1}
            return %p, %q, %r
        }
        """,
    ),
    Case(
        "share_concat_prefix",
        "other axes, other orders and equal ones stay",
        COPIES,
        """
        graph g(%a: f32[2,2,2], %b: f32[2,2,2], %c: f32[2,2,2]) {
            %p = Concat(%a, %b) {axis=1}
            %q = Concat(%a, %b, %c) {axis=2}
            %r = Concat(%b, %a, %c) {axis=1}
            %s = Concat(%b, %a, %c) {axis=1}
            return %p, %q, %r, %s
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)
