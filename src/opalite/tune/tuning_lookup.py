"""Looks up parameters of a kernel on a node: the user's database, shipped defaults, entries of similar sizes.

The first layer that answers wins: the exact entry of this device; that of the same device with another number of cores;
the shipped entry of the device's family; the user's entry of other sizes. Only the first gives a time that kernel
selection uses. The others give parameters and name their origin. Shipped entries are found by kernel name, not by
source digest, since measurements of an earlier version remain good guesses. Parameters that a kernel no longer has or
accepts are ignored.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Node
from ..kernels.kernel import Binding, Kernel, LaunchConfig
from ..kernels.node_launches import barrier_refusal
from .database_files import shipped_layers
from .database_keys import binding_signature, device_signature, node_signature, other_units, size_distance, size_text
from .export_json import from_json
from .kernel_digest import kernel_digest
from .plan_dependencies import NEAR
from .tuning_database import Entry, TuningDatabase


class Lookup:
    """Lookups for one device."""

    def __init__(self, database: TuningDatabase, device: DeviceInfo) -> None:
        self.database = database
        self.device = device
        self.device_key = device_signature(device)
        self._others: list[str] | None = None  # signatures of this device with other numbers of compute units
        self._nodes: weakref.WeakKeyDictionary[Node, str] = weakref.WeakKeyDictionary()

    def signature(self, node: Node) -> str:
        """The node's signature, computed once."""
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = node_signature(node)
        return found

    def entry(self, node: Node, kernel: Kernel, binding: Binding) -> Entry | None:
        """The exact entry of this device."""
        key = (kernel_digest(kernel), binding_signature(binding), self.signature(node))
        return self.database.find(self.device_key, *key)

    def seconds(self, node: Node, kernel: Kernel, binding: Binding) -> float | None:
        """The measured time for kernel selection; None without an exact entry."""
        found = self.entry(node, kernel, binding)
        return None if found is None else found.seconds

    def setting(self, node: Node, kernel: Kernel, binding: Binding) -> LaunchConfig | None:
        """Parameters and work-group for a placed node; None for the untuned ones."""
        found = self.entry(node, kernel, binding)
        if found is not None:
            return self._legal(node, kernel, LaunchConfig(found.params, found.group, "measured"))
        if (elsewhere := self._elsewhere(node, kernel, binding)) is not None:
            return self._legal(node, kernel, elsewhere)
        shipped = self._shipped(node, kernel, binding)
        if shipped is not None:
            return self._legal(node, kernel, shipped)
        return self._near(node, kernel, binding)

    def _elsewhere(self, node: Node, kernel: Kernel, binding: Binding) -> LaunchConfig | None:
        """The entry of the same device with another number of compute units."""
        if self._others is None:
            self._others = other_units(self.device_key, self.database.devices())
        for name in self._others:
            found = self.database.find(name, kernel_digest(kernel), binding_signature(binding), self.signature(node))
            if found is not None:
                return LaunchConfig(found.params, found.group, f"measured with {name.rpartition('|')[2]}")
        return None

    def _shipped(self, node: Node, kernel: Kernel, binding: Binding) -> LaunchConfig | None:
        key = (kernel.name, binding_signature(binding), self.signature(node))
        for name, path in shipped_layers(self.device):
            e = _shipped_entries(path).get(key)
            if e is not None:
                return LaunchConfig(e.params, e.group, f"shipped for {name}")
        return None

    def _near(self, node: Node, kernel: Kernel, binding: Binding) -> LaunchConfig | None:
        own = self.signature(node)
        e = self.database.nearest(self.device_key, kernel_digest(kernel), binding_signature(binding), own)
        if e is None or size_distance(e.node, own) > NEAR:
            return None
        return self._legal(
            node, kernel, LaunchConfig(e.params, None, f"of the nearest entry, sizes {size_text(e.node)}")
        )

    def _legal(self, node: Node, kernel: Kernel, setting: LaunchConfig) -> LaunchConfig | None:
        """The configuration, if the kernel has these parameters and accepts them for the node."""
        p = kernel.problem(node, self.device)
        if setting.params.keys() != kernel.defaults(p).keys() or kernel.illegal(p, setting.params):
            return None
        return None if barrier_refusal(kernel, p, setting.params) else setting


@cache
def _shipped_entries(path: Path) -> Mapping[tuple[str, str, str], Entry]:
    return {(e.kernel.partition(":")[0], e.binding, e.node): e for e in from_json(path.read_text())}


def find_settings(lookup: Lookup, nodes: Iterable[Any]) -> dict[Node, LaunchConfig]:
    """Launch configurations of the placed nodes that have a kernel."""
    found = {}
    for node in nodes:
        kernel = node.chosen.kernel
        if kernel is not None and any(o.type.count for o in node.outputs):
            setting = lookup.setting(node, kernel, node.chosen.option.binding)
            if setting is not None:
                found[node] = setting
    return found
