"""Custom operators' options: FlexBuffers, or numbers as a C structure lays them out."""

from __future__ import annotations

import struct
from typing import Any

from ...errors import ModelFormatError
from ..walk.node_context import NodeContext


def flex_options(ctx: NodeContext) -> dict[str, Any]:
    """Return the node's options, which are a FlexBuffers map. ModelFormatError if they are damaged."""
    from flatbuffers import flexbuffers  # comes with the package tflite

    raw = ctx.attr("custom_options", None)
    try:
        found = flexbuffers.Loads(bytearray(raw)) if raw else {}
    except Exception as e:  # the reader raises whatever its offsets lead to
        raise ModelFormatError(f"{ctx.label} (version {ctx.version}) has damaged options: {e}") from e
    if not isinstance(found, dict):
        raise ModelFormatError(f"{ctx.label} (version {ctx.version}) has options that are no map but {found!r}")
    return found


def packed_options(ctx: NodeContext, count: int) -> tuple[int, ...]:
    """Return the first `count` 32-bit integers of the node's options. ModelFormatError if they are fewer."""
    raw = ctx.attr("custom_options", None) or b""
    if len(raw) < 4 * count:
        raise ModelFormatError(f"{ctx.label} (version {ctx.version}) has {len(raw)} bytes of options, not {4 * count}")
    return struct.unpack_from(f"<{count}i", raw)
