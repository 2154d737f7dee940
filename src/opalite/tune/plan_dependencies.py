"""The tuning results that a cached plan depends on, so that tuning invalidates the plans it changes.

Planning reads the verdict on the graph, the entries of its nodes, and entries of the closest sizes. A cached plan is
stale if one of these answers has changed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Node
from ..plan.program import TuningRecord
from .database_files import database_path, tuning_stamp
from .database_keys import device_signature, form_of, graph_signature, node_signature, other_units, size_distance

if TYPE_CHECKING:
    from .tuning_database import Entry, TuningDatabase

NEAR = 6.0
"""Octaves of size, all axes together, within which a neighbour's parameters are taken."""


def record(device: DeviceInfo, graph: str, nodes: Iterable[Node], stamp: str) -> TuningRecord:
    """The record of a plan of placed `nodes`. stamp: the database's stamp before planning."""
    signatures = tuple(sorted({node_signature(n) for n in nodes}))
    return TuningRecord(graph, signatures, stamp, _answers(device, graph, signatures))


def holds(kept: TuningRecord, device: DeviceInfo) -> bool:
    """Whether a plan with that record would be the same now."""
    return kept.stamp == tuning_stamp() or kept.answers == _answers(device, kept.graph, kept.nodes)


def graph_key(nodes: Sequence[Node], memory: str) -> str:
    """The key of verdicts on a graph, before layouts are chosen."""
    return graph_signature(nodes, memory)


def _answers(device: DeviceInfo, graph: str, signatures: Sequence[str]) -> str:
    """Digest of the database's answers; '' if it has none."""
    path = database_path()
    if path is None or not path.is_file():
        return ""
    from .tuning_database import open_database

    return answers(open_database(), device, graph, signatures)


def answers(database: TuningDatabase, device: DeviceInfo, graph: str, signatures: Sequence[str]) -> str:
    """Digest of the answers of `database` for a graph and its nodes; '' if it has none."""
    own = device_signature(device)
    said = []
    verdict = database.verdict(own, graph)
    if verdict is not None:
        said.append(f"verdict {verdict.tuned}")
    if verdict is None or verdict.tuned:
        by_form: dict[str, list[Entry]] = {}
        for name in (own, *other_units(own, database.devices())):
            for entry in database.entries(name):
                by_form.setdefault(form_of(entry.node), []).append(entry)
        for signature in signatures:
            said += _of_node(own, signature, by_form.get(form_of(signature), ()))
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogatepass")).hexdigest() if said else ""


def _of_node(own: str, signature: str, entries: Iterable[Entry]) -> list[str]:
    """The answering entry for each kernel and layouts: the exact one, else another unit count's, else the nearest."""
    found: dict[tuple[str, str], tuple[tuple[float, str, str], Entry]] = {}
    for e in entries:
        distance = -1.0 if e.node == signature else size_distance(e.node, signature)
        if distance > NEAR or math.isinf(distance) or (e.device != own and e.node != signature):
            continue
        rank = (distance, "" if e.device == own else e.device, e.node)
        key = (e.kernel, e.binding)
        if key not in found or rank < found[key][0]:
            found[key] = rank, e
    return [
        f"{key} {e.params} {e.group} {e.seconds if rank[0] < 0 else ''}" for key, (rank, e) in sorted(found.items())
    ]
