"""Keys of tuning entries: the properties of a node and a device that a measurement depends on.

A node's signature is its form (operator, attributes, expression, element types, filter sizes) and its sizes. Entries of
equal form and other sizes are neighbours, because their parameters have the same meaning.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

from ..ir.device.device_family import find_family
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Node, Value
from ..ir.precision import Precision
from ..ir.shape_hints import hinted
from ..kernels.kernel import Binding
from ..ops.elementwise import Elementwise, PlaceCast

_SEPARATOR = " | "
Sizes = tuple[tuple[int, ...], ...]


def node_signature(node: Node) -> str:
    """Equal for nodes that share a measurement, before and after layouts are chosen; of the current sizes."""
    node = hinted(node)
    if isinstance(node.op, PlaceCast):  # its types differ only by layout and storage
        ins, outs = [_stored(v, v.type.storage) for v in (node.x, node.y)]
        return f"PlaceCast {ins}->{outs}{_SEPARATOR}{_size_text([node.x.shape])}"
    values = [*node.inputs, *node.outputs]
    kinds = ",".join("-" if v is None else _stored(v, node.precision.stored(v.dtype)) for v in values)
    attrs = ",".join(f"{k}={v}" for k, v in sorted(node.op.attributes().items()) if k != "expr")
    exprs = f"expr={node.op.expr}" if isinstance(node.op, Elementwise) else ""
    if node.epilogue is not None:
        exprs = f"epilogue={node.epilogue}"
    sizes = _size_text([() if v is None else v.shape for v in values])
    sums = " half sums" if node.precision is Precision.FP16_FAST else ""
    return f"{node.op.name} {kinds} {attrs} {exprs}{sums}{_SEPARATOR}{sizes}"


def _stored(v: Value, storage: DType) -> str:
    """Storage type and rank; for constants also the part of their shape that becomes code, the filter's extent."""
    window = "x".join(map(str, v.shape[2:]))
    return f"{v.dtype.short}/{storage.short}@{len(v.shape)}" + (f"const{window}" if v.is_const else "")


def _size_text(shapes: Iterable[tuple[int, ...]]) -> str:
    return " ".join("x".join(map(str, s)) or "1" for s in shapes)


def form_of(signature: str) -> str:
    """The form in a node's signature."""
    return signature.rpartition(_SEPARATOR)[0]


def size_text(signature: str) -> str:
    """The sizes of a node's inputs and outputs, such as '1x32x56x56 64x32x3x3 64 1x64x56x56'."""
    return signature.rpartition(_SEPARATOR)[2]


def size_distance(a: str, b: str) -> float:
    """Sum of |log2| ratios of the sizes in two signatures; infinite unless they have the same form."""
    if form_of(a) != form_of(b):
        return math.inf
    pairs = zip(_sizes(a), _sizes(b), strict=True)
    return sum(abs(math.log2((x + 1) / (y + 1))) for s, t in pairs for x, y in zip(s, t, strict=True))


def _sizes(signature: str) -> Sizes:
    return tuple(tuple(map(int, s.split("x"))) for s in size_text(signature).split())


def binding_signature(binding: Binding) -> str:
    """The layouts of a binding as text."""
    ins = ",".join("-" if layout is None else str(layout) for layout in binding.inputs)
    return f"{ins}->{','.join(map(str, binding.outputs))}"


def device_signature(device: DeviceInfo) -> str:
    """Device, compute units, driver and platform versions, so that a driver update invalidates entries."""
    names = (device.name, device.vendor, device.platform, device.version, device.driver)
    return "|".join((*names, f"{device.compute_units} units"))


def other_units(signature: str, known: Iterable[str]) -> list[str]:
    """Signatures in `known` of the same device with other numbers of compute units, nearest number first."""

    def split(text: str) -> tuple[str, int]:
        names, _, units = text.rpartition("|")
        number = units.removesuffix(" units")
        return names, int(number) if number.isdigit() else 0

    names, own = split(signature)
    found = [
        (abs(math.log2(units / max(own, 1))), text)
        for text in known
        for n, units in [split(text)]
        if n == names and units
    ]
    return [text for _, text in sorted(found) if text != signature]


def graph_signature(nodes: Iterable[Node], memory: str) -> str:
    """Digest of a graph's nodes in order, before layouts are chosen, and of the allowed memory kinds."""
    sha = hashlib.sha256(memory.encode())
    for node in nodes:
        sha.update(node_signature(node).encode() + b"\n")
    return sha.hexdigest()[:32]


def device_title(signature: str) -> str:
    """The device of a signature as its owner calls it; the signature itself if it is none of `device_signature`."""
    parts = signature.split("|")
    if len(parts) != 6:
        return signature
    name, vendor, platform, version, driver, _ = parts
    kind = "cpu" if name.startswith(("pthread-", "cpu-", "basic-")) else "gpu"
    family = find_family(name, vendor, platform, version, kind, driver=driver).family
    return DeviceInfo(name, vendor, platform, version, driver, kind=kind, family=family).title
