"""Predictor: a program ready to run, with handles of its inputs and outputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import knobs
from ..errors import InputError, InputTypeError, ModelFileError, OptionError
from ..ir.model_paths import params_of, program_in
from ..run.api.options.session_options import PARAMS_FILE, SessionOptions
from ..run.api.session.inference_session import InferenceSession
from .config import Config, PrecisionType
from .tensor import Tensor

_NUMPY = {"float": "float32", "double": "float64"}


class Predictor:
    """Runs a program by handles of inputs and outputs. Not thread-safe; each thread has a `clone` of its own."""

    def __init__(self, config: Config, session: InferenceSession | None = None) -> None:
        """Open the program. session: one that is open already."""
        self._config = config
        self._session = _open(config) if session is None else session
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        self._inputs = {v.name: Tensor(v.name, _dtype(v.type), True) for v in inputs}
        self._outputs = {v.name: Tensor(v.name, _dtype(v.type), False) for v in outputs}

    def get_input_names(self) -> list[str]:
        """Return the names that the program feeds, in order."""
        return list(self._inputs)

    def get_output_names(self) -> list[str]:
        """Return the names that the program fetches, in order."""
        return list(self._outputs)

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """Return the declared sizes of the inputs; -1 for open ones."""
        return {v.name: [d if isinstance(d, int) else -1 for d in v.shape] for v in self._session.get_inputs()}

    def get_input_handle(self, name: str) -> Tensor:
        """Return the handle of an input; the same for each call."""
        return self._find(self._inputs, name, "input")

    def get_output_handle(self, name: str) -> Tensor:
        """Return the handle of an output; each run fills it."""
        return self._find(self._outputs, name, "output")

    def run(self, inputs: Sequence[Any] | None = None) -> Any:
        """Run; the handles of the outputs hold the results. inputs: arrays in order, then the handles are returned."""
        if inputs is not None:
            if len(inputs) != len(self._inputs):
                raise InputError(f"run takes {len(self._inputs)} inputs ({', '.join(self._inputs)}), got {len(inputs)}")
            for tensor, value in zip(self._inputs.values(), inputs, strict=True):
                tensor.share_external_data(value.copy_to_cpu() if isinstance(value, Tensor) else value)
        missing = [name for name, t in self._inputs.items() if t.held is None]
        if missing:
            raise InputError(
                f"input '{missing[0]}' has no contents: call get_input_handle('{missing[0]}').copy_from_cpu"
            )
        results = self._session.run(None, {name: t.held for name, t in self._inputs.items()})
        for tensor, value in zip(self._outputs.values(), results, strict=True):
            tensor.held = value
        return True if inputs is None else list(self._outputs.values())

    def clone(self, stream: Any = None) -> Predictor:
        """Return a predictor with handles of its own; programs and weights on the device are shared."""
        return Predictor(self._config, self._session)

    def clear_intermediate_tensor(self) -> None:
        """Accept the call; intermediate tensors share one allocation, which stays."""

    def try_shrink_memory(self) -> int:
        """Accept the call; returns 0, the number of bytes given back."""
        return 0

    def register_output_hook(self, hook: Any) -> None:
        """Refuse: operators are fused, so that intermediate tensors do not exist."""
        raise OptionError("intermediate tensors do not exist: operators are fused. `opalite verify` compares nodes")

    register_input_hook = register_output_hook

    def _find(self, tensors: dict[str, Tensor], name: str, what: str) -> Tensor:
        if name not in tensors:
            raise InputError(f"the program has no {what} '{name}'; it has {', '.join(tensors)}")
        return tensors[name]


class PredictorPool:
    """Several predictors of one program, each for one thread."""

    def __init__(self, config: Config, size: int = 1) -> None:
        """Open the program once, for `size` predictors."""
        first = Predictor(config)
        self._predictors = [first, *(first.clone() for _ in range(size - 1))]

    def retrieve(self, index: int) -> Predictor:
        """Return predictor `index`."""
        return self._predictors[index]

    retrive = retrieve  # Paddle's spelling


def create_predictor(config: Config) -> Predictor:
    """Open a predictor with these settings. Raises as InferenceSession does."""
    if not isinstance(config, Config):
        raise InputTypeError(
            f"create_predictor takes a Config, got {type(config).__name__}: Config(program, parameters)"
        )
    return Predictor(config)


def _open(config: Config) -> InferenceSession:
    options = SessionOptions()
    source: str | bytes
    if config._buffers is not None:
        source, params = config._buffers
        if params:
            options.add_external_initializers_from_files_in_memory(["params"], [params], [len(params)])
    else:
        source = config.prog_file()
        if not source:
            raise OptionError("the Config names no model: Config(program, parameters), Config(folder) or set_model")
        program = program_in(source) or source
        given = config.params_file()
        if given and not os.path.exists(given):
            raise ModelFileError(f"there is no file '{given}' with the parameters of '{program}'")
        if given and not _is_own(program, given):
            options.add_session_config_entry(PARAMS_FILE, given)
    device: str | None = f"gpu:{config._gpu[0]}" if config._gpu else "cpu"
    if knobs.get("OPALITE_DEVICE") is not None:
        device = None  # the environment decides
    precision = "fp16" if config._gpu is not None and config._gpu[1] is PrecisionType.Half else None
    return InferenceSession(source, options, device=device, precision=precision)


def _is_own(program: Any, params: str) -> bool:
    """Whether the parameters are those that are found by the program's name."""
    from pathlib import Path

    own = params_of(Path(program))
    return own is not None and own.resolve() == Path(params).resolve()


def _dtype(kind: str) -> str:
    """Return NumPy's name of a type such as 'tensor(float)'."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return _NUMPY.get(name, name)
