"""Workspace: the tensors of one node in device memory, and its launches by any kernel, parameters and work-group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cl.launch import LocalBytes, PreparedLaunch
from ..cl.runtime import Runtime
from ..errors import DeviceError
from ..ir.dtype import DType
from ..ir.graph import Node, Value
from ..kernels.arguments import lower
from ..kernels.base import Grid, Kernel, Launch, Local, Params, Scratch, Weight
from ..kernels.image.layout import blocks_to_texels, texels_to_blocks
from ..kernels.launches import launches_of
from ..kernels.packing import pack_array, unpack_array
from ..kernels.sources import option_text, program_text
from ..kernels.workgroups import open_launch, size_launches

Array = np.ndarray[Any, Any]
GUARD = 64  # bytes of a known pattern past the end of every output
_PATTERN = 0xA5
_KEPT_FORMS = 256 << 20  # bytes of constants in kernels' own forms that are kept for the next launch


class Workspace:
    """Allocates a node's tensors once; launches prepared on it share them. Outputs end in guard bytes.

    The node's values have their places. `arrays` are the logical inputs, None where an input is absent.
    """

    def __init__(self, rt: Runtime, node: Node, arrays: Sequence[Array | None]) -> None:
        self.rt = rt
        self.node = node
        self._tensors: dict[Value, Any] = {}
        self._forms: dict[tuple[Value, str], tuple[Any, np.dtype[Any]]] = {}
        self._form_bytes = 0
        for v, a in zip(node.inputs, arrays, strict=True):
            if v is not None and a is not None and v not in self._tensors:
                self._tensors[v] = self._uploaded(v, a)
        for v in node.outputs:
            self._tensors[v] = self._image(v) if v.type.layout.is_image else rt.allocate(v.type.nbytes + GUARD)
        self.poison()

    def poison(self) -> None:
        """Fill the outputs, guard bytes included, so that what a launch leaves undone shows."""
        for v in self.node.outputs:
            if v.type.layout.is_image:
                w, h = v.type.layout.image_size(v.shape)
                self.rt.write_image(self._tensors[v], np.full((h, w, 4), np.nan, v.type.storage.np))
            else:
                self.rt.fill(self._tensors[v], _PATTERN, v.type.nbytes + GUARD)

    def prepare(self, kernel: Kernel, params: Params | None = None, group: Grid | None = None) -> list[PreparedLaunch]:
        """The node's launches by `kernel`, those of an empty grid left out; `params` default to the untuned ones.

        `group` is the work-group of launches that leave it open. DeviceError if a kernel does not run with its group.
        """
        problem = kernel.problem(self.node, self.rt.info)
        launches = launches_of(kernel, problem, kernel.defaults(problem) if params is None else params)
        scratch: dict[str, Any] = {}
        return [
            self._prepare(kernel, launch, grid, local, group, scratch)
            for launch, grid, local in size_launches(launches, self.rt.info, group)
        ]

    def group_limit(self, kernel: Kernel, params: Params) -> int | None:
        """Most work-items in a group of the launch that leaves its own open, as it is built; None if there is none."""
        launch = open_launch(launches_of(kernel, kernel.problem(self.node, self.rt.info), params))
        if launch is None:
            return None
        ((_, grid, local),) = size_launches([launch], self.rt.info)
        return self._prepare(kernel, launch, grid, local, None, {}).work_group_limit(self.rt.device)

    def results(self) -> list[Array]:
        """The logical outputs. DeviceError if guard bytes were overwritten, or lanes past C are not zero."""
        self.rt.finish()
        return [self._result(v) for v in self.node.outputs]

    def _result(self, v: Value) -> Array:
        shape = v.type.layout.storage_shape(v.shape)
        if v.type.layout.is_image:
            w, h = v.type.layout.image_size(v.shape)
            texels = np.empty((h, w, 4), v.type.storage.np)
            self.rt.read_image(self._tensors[v], texels)
            stored = texels_to_blocks(texels, v.shape)
        else:
            raw = np.empty(v.type.nbytes + GUARD, np.uint8)
            self.rt.read(self._tensors[v], raw)
            if np.any(raw[v.type.nbytes :] != _PATTERN):
                raise DeviceError(f"something was written past the end of output {v!r}")
            stored = raw[: v.type.nbytes].view(v.type.storage.np).reshape(shape)
        return unpack_array(stored, v.shape, v.type.layout).astype(v.dtype.np)

    def _prepare(
        self, kernel: Kernel, launch: Launch, grid: Grid, local: Grid, group: Grid | None, scratch: dict[str, Any]
    ) -> PreparedLaunch:
        source = launch.source or kernel.source
        program = self.rt.build(program_text(source, launch.prelude), option_text(launch.defines), source)
        memory = _Bound(self, scratch)
        args = [LocalBytes(a.nbytes) if isinstance(a, Local) else a for a in lower(kernel, launch, memory)]
        made = self.rt.prepare(program, launch.entry, args, grid, local, kernel.name)
        if launch.group is None:
            made.fit_group(self.rt.device)
        if made.group != local and local == group:
            raise DeviceError(f"{kernel.name} runs with work-groups up to {made.group}, not {group}")
        return made

    def tensor(self, v: Value) -> Any:
        """Memory of a tensor; a constant's is filled when it is first asked for."""
        if v not in self._tensors:
            assert v.data is not None, f"{v!r} has no memory"
            self._tensors[v] = self._uploaded(v, v.data)
        return self._tensors[v]

    def form(self, a: Weight) -> tuple[Any, np.dtype[Any]]:
        """Memory of a constant in a kernel's form, and its element type."""
        key = (a.value, a.form)
        if key not in self._forms:
            assert a.value.data is not None
            array = np.ascontiguousarray(a.fn(a.value.data))
            if self._form_bytes + array.nbytes > _KEPT_FORMS:
                self._forms, self._form_bytes = {}, 0
            self._form_bytes += array.nbytes
            self._forms[key] = self._texture(array) if a.image else self.constant(array), array.dtype
        return self._forms[key]

    def _uploaded(self, v: Value, array: Array) -> Any:
        stored = pack_array(array, v.type.layout).astype(v.type.storage.np)
        if v.type.layout.is_image:
            image = self._image(v)
            self.rt.write_image(image, blocks_to_texels(stored))
            return image
        buffer = self.rt.allocate(stored.nbytes + GUARD)
        if stored.nbytes:
            self.rt.write(buffer, stored)
        return buffer

    def _image(self, v: Value) -> Any:
        return self.rt.make_image(*v.type.layout.image_size(v.shape), v.type.storage)

    def constant(self, array: Array) -> Any:
        """A buffer that holds `array`."""
        buffer = self.rt.allocate(array.nbytes)
        if array.nbytes:
            self.rt.write(buffer, np.ascontiguousarray(array))
        return buffer

    def _texture(self, array: Array) -> Any:
        h, w, _ = array.shape
        image = self.rt.make_image(w, h, DType.of(array))
        self.rt.write_image(image, array)
        return image


@dataclass(frozen=True)
class _Bound:
    """The memory that the arguments of launches lie in; `scratch` is that of one round of launches."""

    workspace: Workspace
    scratch: dict[str, Any]

    def of_value(self, value: Value) -> Any:
        return self.workspace.tensor(value)

    def of_weight(self, weight: Weight) -> tuple[Any, np.dtype[Any]]:
        return self.workspace.form(weight)

    def of_scratch(self, scratch: Scratch) -> Any:
        if scratch.name not in self.scratch:
            self.scratch[scratch.name] = self.workspace.rt.allocate(scratch.nbytes)
        return self.scratch[scratch.name]

    def of_table(self, name: str, table: Array) -> Any:
        return self.workspace.constant(table)
