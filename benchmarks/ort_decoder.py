"""onnxruntime as a decoder's engine: caches as arrays, or bound to memory that stays where it is from step to step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

WAYS = "arrays", "bound"


class OrtDecoder:
    """A decoder of benchmarks/models/llama.py in onnxruntime's CPU provider.

    `arrays` feeds each output back as an array. `bound` binds caches as OrtValues: a model with GroupQueryAttention
    appends to one buffer of `room` positions, which is its input and output (past_present_share_buffer); others write
    each step's caches to new OrtValues, which are the next step's inputs. past: positions in the caches.
    """

    def __init__(
        self, path: str | os.PathLike[str], names: Sequence[str], threads: int, *, way: str, shared: bool, room: int
    ) -> None:
        """names: of the inputs for caches, in the order of the outputs after the first. shared: GroupQueryAttention."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        self._make = onnxruntime.OrtValue.ortvalue_from_numpy
        self._session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        self._names, self._way, self._shared, self._room = names, way, shared and way == "bound", room
        self._outputs = [o.name for o in self._session.get_outputs()]
        shape = next(a.shape for a in self._session.get_inputs() if a.name == names[0])
        self._sizes = [1, shape[1], 0, shape[3]]
        self.reset()

    def reset(self) -> None:
        """Empty the caches."""
        if self._shared:
            self._sizes[2] = self._room
        self.set_caches({name: np.zeros(self._sizes, np.float32) for name in self._names}, 0)

    def set_caches(self, caches: Mapping[str, Any], past: int) -> None:
        """Continue after `past` positions with these arrays [1,heads,positions,head]."""
        self.past = past
        if self._shared:
            caches = {
                n: np.pad(a, ((0, 0), (0, 0), (0, max(0, self._room - a.shape[2])), (0, 0))) for n, a in caches.items()
            }
        self._caches = dict(caches) if self._way == "arrays" else {n: self._make(a) for n, a in caches.items()}

    def run(self, feeds: Mapping[str, Any]) -> Any:
        """The logits of some more tokens."""
        self.past += feeds["input_ids"].shape[1]
        if self._way == "arrays":
            logits, *caches = self._session.run(None, {**feeds, **self._caches})
            self._caches = dict(zip(self._names, caches, strict=True))
            return logits
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name, value in self._caches.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_output(self._outputs[0], "cpu")
        for name, output in zip(self._names, self._outputs[1:], strict=True):
            if self._shared:
                binding.bind_ortvalue_output(output, self._caches[name])
            else:
                binding.bind_output(output, "cpu")
        self._session.run_with_iobinding(binding)
        found = binding.get_outputs()
        if not self._shared:
            self._caches = dict(zip(self._names, found[1:], strict=True))
        return found[0].numpy()
