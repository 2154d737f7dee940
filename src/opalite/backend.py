"""OpaliteBackend: an implementation of `onnx.backend.base.Backend`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.backend.base import Backend, BackendRep, namedtupledict

from .cl.runtime import find_runtime
from .errors import InputError, NoDeviceError, OptionError, UnsupportedOpError
from .importer import load_model
from .run.api.options.run_options import RunOptions
from .run.api.options.session_options import SessionOptions
from .run.api.session.inference_session import InferenceSession

_SESSION_OPTIONS = frozenset(
    {
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_mem_reuse",
        "execution_mode",
        "execution_order",
        "graph_optimization_level",
        "inter_op_num_threads",
        "intra_op_num_threads",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "use_deterministic_compute",
        "use_per_session_threads",
    }
)
_RUN_OPTIONS = frozenset({"log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"})
_OWN_OPTIONS = frozenset({"precision", "memory", "tune", "strict"})


class OpaliteBackendRep(BackendRep):  # type: ignore[misc]
    """A model prepared to run."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model; returns the outputs as a named tuple. Raises InputError for inputs that do not fit.

        inputs: arrays in the model's order, or a dict by name. kwargs: attributes of RunOptions that concern logging;
        other attributes raise OptionError.
        """
        options = RunOptions() if kwargs else None
        _set_options(options, _RUN_OPTIONS, kwargs, "use session.run")
        names = [i.name for i in self.session.get_inputs()]
        if isinstance(inputs, dict):
            feeds = inputs
        else:
            given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) > len(names):
                raise InputError(f"the model takes {len(names)} inputs, got {len(given)}")
            feeds = dict(zip(names, given, strict=False))
        outputs = self.session.run(None, feeds, options)
        fields = [o.name for o in self.session.get_outputs()]
        found: tuple[Any, ...] = namedtupledict("Outputs", fields)(*outputs)
        return found


class OpaliteBackend(Backend):  # type: ignore[misc]
    """The backend. device: 'CPU' (the default device), 'CUDA' (any GPU), or a device request of InferenceSession."""

    @classmethod
    def prepare(cls, model: Any, device: str | None = "CPU", **kwargs: Any) -> OpaliteBackendRep:
        """Compile `model`: a path, bytes or a ModelProto. An InferenceSession or OpaliteBackendRep is used as it is.

        kwargs: arguments of InferenceSession (precision, memory, tune, strict), and the attributes of SessionOptions
        that onnxruntime's backend accepts; other attributes raise OptionError.
        """
        if isinstance(model, OpaliteBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OpaliteBackendRep(model)
        source = model.SerializeToString() if hasattr(model, "SerializeToString") else model
        own = {k: v for k, v in kwargs.items() if k in _OWN_OPTIONS}
        options = SessionOptions()
        rest = {k: v for k, v in kwargs.items() if k not in _OWN_OPTIONS}
        _set_options(options, _SESSION_OPTIONS, rest, "make an InferenceSession with it")
        return OpaliteBackendRep(InferenceSession(source, options, device=_device(device), **own))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Call `prepare`, and `run` of its result."""
        options = {k: v for k, v in kwargs.items() if k in _RUN_OPTIONS}
        return cls.prepare(model, device, **kwargs).run(inputs, **options)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node on arrays."""
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
    def is_compatible(cls, model: Any, device: str | None = "CPU", **kwargs: Any) -> bool:
        """Whether all operators of `model` (a path, bytes or a ModelProto) are supported."""
        try:
            load_model(model)
        except UnsupportedOpError:
            return False
        return True

    @classmethod
    def supports_device(cls, device: str | None) -> bool:
        """Whether `device` matches an OpenCL device."""
        try:
            find_runtime(_device(device))
        except NoDeviceError:
            return False
        return True


def _device(name: str | None) -> str | None:
    kind = (name or "CPU").split(":")[0].upper()
    return {"CPU": None, "CUDA": "gpu", "GPU": "gpu"}.get(kind, name)


def _set_options(options: Any, allowed: Collection[str], values: Mapping[str, Any], advice: str) -> None:
    """Set `values` in `options`. Raises OptionError for attributes not in `allowed`; ignores unknown names."""
    for name, value in values.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            raise OptionError(f"{type(options).__name__}.{name} cannot be set by the backend; {advice}")


def _newest(domain: str) -> int:
    from onnx import defs

    return int(defs.onnx_opset_version()) if domain in ("", "ai.onnx") else 1


prepare = OpaliteBackend.prepare
run = run_model = OpaliteBackend.run_model
run_node = OpaliteBackend.run_node
is_compatible = OpaliteBackend.is_compatible
supports_device = OpaliteBackend.supports_device
