"""Opalite as an `onnx.backend.base.Backend`, for tools that speak ONNX's own interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.backend.base import Backend, BackendRep, namedtupledict

from .cl.runtime import find_runtime
from .errors import InputError, NoDeviceError, UnsupportedOpError
from .importer import load_model
from .run.session import InferenceSession


class OpaliteBackendRep(BackendRep):  # type: ignore[misc]
    """A prepared model: `run(inputs)` takes arrays in the model's order, or a mapping by name."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs as a named tuple. InputError says what does not fit."""
        names = [i.name for i in self.session.get_inputs()]
        if isinstance(inputs, dict):
            feeds = inputs
        else:
            given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) > len(names):
                raise InputError(f"the model takes {len(names)} inputs, got {len(given)}")
            feeds = dict(zip(names, given, strict=False))
        outputs = self.session.run(None, feeds)
        fields = [o.name for o in self.session.get_outputs()]
        found: tuple[Any, ...] = namedtupledict("Outputs", fields)(*outputs)
        return found


class OpaliteBackend(Backend):  # type: ignore[misc]
    """`device` is 'CPU' or 'CUDA' as in onnx (CUDA stands for any GPU), or any of opalite's own names."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> OpaliteBackendRep:
        """Compile `model`, a ModelProto."""
        return OpaliteBackendRep(InferenceSession(model.SerializeToString(), device=_device(device), **kwargs))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare and run at once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node; input types are those of the arrays."""
        from onnx import helper

        names = [n for n in node.input if n]
        arrays = dict(zip(names, [np.asarray(i) for i in inputs], strict=True))
        ins = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in arrays.items()
        ]
        outs = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
        opsets = [helper.make_opsetid(node.domain, kwargs.pop("opset_version", 0) or _newest(node.domain))]
        model = helper.make_model(helper.make_graph([node], "node", ins, outs), opset_imports=opsets)
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator is known."""
        try:
            load_model(model.SerializeToString())
        except UnsupportedOpError:
            return False
        return True

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether an OpenCL device answers to `device`."""
        try:
            find_runtime(_device(device))
        except NoDeviceError:
            return False
        return True


def _device(name: str) -> str | None:
    kind = name.split(":")[0].upper()
    return {"CPU": None, "CUDA": "gpu"}.get(kind, name)


def _newest(domain: str) -> int:
    from onnx import defs

    return int(defs.onnx_opset_version()) if domain in ("", "ai.onnx") else 1


prepare = OpaliteBackend.prepare
run_model = OpaliteBackend.run_model
run_node = OpaliteBackend.run_node
is_compatible = OpaliteBackend.is_compatible
supports_device = OpaliteBackend.supports_device
