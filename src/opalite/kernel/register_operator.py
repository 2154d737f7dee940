"""register_operator: class decorator that makes a class of another package an operator, and finds it in models."""

from __future__ import annotations

import dataclasses
import keyword
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, dataclass_transform, get_args, get_type_hints

import numpy as np

from ..errors import PluginError, ShapeError
from ..ir.dtype import DType
from ..ir.load_plugins import provider_of
from ..ir.plugins import is_foreign
from ..ir.symbols import hint_of
from ..ir.tensor_type import TensorType
from ..ops.model_names import ATTRIBUTE_TYPES, MODEL_NAMES, TFLITE_DOMAIN
from ..ops.operator import Cost, Op, all_ops, register_op, withdraw_op
from .guard_methods import guard_methods, is_same_declaration, place_of, wrong_result

_C = TypeVar("_C", bound=type[Op])
_MOST_INPUTS = 64
_OWN_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")


@dataclass_transform(frozen_default=True)
def register_operator(*, domain: str = "", name: str = "", since: int = 1, tflite: bool = False) -> Callable[[_C], _C]:
    """Class decorator: make a class derived from Operator an operator, whose fields are its attributes.

    Nodes `name` (by default the class's own) of ONNX's `domain` become this operator, from version `since` of the
    domain on. tflite: nodes of custom operators of that name in .tflite files too, whose options are a FlexBuffers map.
    A field without a default is an attribute that a node must have; `name_` stands for the model's `name`, where that
    is a word of Python or of Operator. PluginError for a name that is taken, or a class that is not complete. A class
    that is declared again takes the place of the one before.
    """

    def register(cls: _C) -> _C:
        if not (isinstance(cls, type) and issubclass(cls, Op)):
            raise PluginError(f"register_operator takes a class derived from opalite.kernel.Operator, got {cls!r}")
        plain = "" if domain == "ai.onnx" else domain
        keys = [(plain, name or cls.__name__, since)] if domain else []
        keys += [(TFLITE_DOMAIN, name or cls.__name__, 1)] if tflite else []
        if not keys:
            raise PluginError(
                f"operator {cls.__name__} needs domain=, that of its nodes in models, or tflite=True{place_of(cls)}"
            )
        made = cls if "__dataclass_fields__" in vars(cls) else cast("_C", dataclasses.dataclass(frozen=True)(cls))
        _check_declaration(made)
        _check_name(made)
        for key in keys:
            _check_key(made, key)
        if not made.takes_epilogue:
            made.arity = max(made.arity, _MOST_INPUTS)  # no input is an epilogue's operand
        guard_methods(made, _CHECKS, lambda args: "", {"reference": _read_only})
        register_op(made)
        for place, op_type, version in keys:
            MODEL_NAMES.setdefault((place, op_type), {})[version] = made
        return made

    return register


def is_reserved(attribute: str) -> bool:
    """Whether an attribute of a model needs an underscore at its end to be a field of an operator."""
    return keyword.iskeyword(attribute) or attribute in Op.__annotations__ or hasattr(Op, attribute)


def _check_declaration(cls: type[Op]) -> None:
    try:
        hints = get_type_hints(cls)
    except Exception as e:
        raise PluginError(f"operator {cls.__name__}: the types of its attributes are not understood: {e}") from e
    for field in dataclasses.fields(cls):
        if is_reserved(field.name):
            raise PluginError(
                f"operator {cls.__name__}: {field.name} is a name of Operator's own; declare the attribute as "
                f"{field.name}_, which stands for the model's {field.name}{place_of(cls)}"
            )
        if hints[field.name] not in ATTRIBUTE_TYPES:
            known = ", ".join(
                t.__name__ if isinstance(t, type) and not get_args(t) else str(t) for t in ATTRIBUTE_TYPES
            )
            raise PluginError(
                f"operator {cls.__name__}: attribute {field.name} is of type {hints[field.name]}; known are {known}"
                f"{place_of(cls)}"
            )
    if cls.reference is Op.reference:
        raise PluginError(f"operator {cls.__name__} has no method reference(self, arrays) in NumPy{place_of(cls)}")


def _check_name(cls: type[Op]) -> None:
    """Withdraw an earlier declaration of the same class; PluginError if another one has the name."""
    known = all_ops().get(cls.__name__)
    if known is None:
        return
    if not is_same_declaration(known, cls):
        theirs = provider_of(known.__module__) if is_foreign(known) else "Opalite"
        raise PluginError(
            f"operator {cls.__name__}: {theirs} has an operator of this name; choose another class name, and give the "
            f"one in models by name={cls.__name__!r}{place_of(cls)}"
        )
    withdraw_op(cls.__name__)


def _check_key(cls: type[Op], key: tuple[str, str, int]) -> None:
    domain, name, since = key
    known = MODEL_NAMES.get((domain, name), {}).get(since)
    if known is not None and not is_same_declaration(known, cls):
        raise PluginError(
            f"operator {cls.__name__}: {provider_of(known.__module__)} imports {domain}.{name} already, as "
            f"{known.__name__}{place_of(cls)}"
        )
    if known is None and (domain in _OWN_DOMAINS or domain == TFLITE_DOMAIN) and (domain, name) in _handled(domain):
        raise PluginError(
            f"operator {cls.__name__}: Opalite imports {name} of {domain or 'ai.onnx'} itself; register a kernel for "
            f"the canonical operator, which `opalite inspect` shows{place_of(cls)}"
        )


def _handled(domain: str) -> Mapping[tuple[str, str], Any]:
    """Operators that Opalite imports itself. Its importer needs onnx, which registering otherwise does without."""
    from ..importer.walk.node_context import handled_ops, load_handlers

    if domain == TFLITE_DOMAIN:
        load_handlers("tflite")
    return handled_ops()


# Checks of results


def _check_nothing(op: Any, args: tuple[Any, ...], found: Any) -> None:
    if found is not None:
        raise wrong_result(op, "check_shape", "nothing; `need(condition, sentence)` refuses inputs", found)


def _check_cost(op: Any, args: tuple[Any, ...], found: Any) -> Cost:
    if not isinstance(found, Cost):
        raise wrong_result(op, "cost", "a Cost", found)
    return found


def _check_types(op: Any, args: tuple[Any, ...], found: Any) -> list[TensorType]:
    if isinstance(found, TensorType):
        found = [found]
    if not isinstance(found, list | tuple) or not found or not all(isinstance(t, TensorType) for t in found):
        raise wrong_result(op, "infer_shape", "a list of TensorType, one for each output", found)
    for t in found:
        sizes = isinstance(t.shape, tuple) and all(isinstance(d, int | np.integer) for d in t.shape)
        if not isinstance(t.dtype, DType) or not sizes:
            raise wrong_result(op, "infer_shape", "TensorTypes of a DType and a tuple of integers", t)
    # Places are the planner's.
    return [TensorType(t.dtype, tuple(d if type(d) is not np.integer else int(d) for d in t.shape)) for t in found]


def _check_arrays(op: Any, args: tuple[Any, ...], found: Any) -> list[Any]:
    """The reference's outputs, in the types of the shape rule. ShapeError if the two disagree."""
    outs = [found] if isinstance(found, np.ndarray | np.generic) else found
    if not isinstance(outs, list | tuple) or not all(isinstance(a, np.ndarray | np.generic) for a in outs):
        raise wrong_result(op, "reference", "a list of arrays, one for each output", found)
    ins = [None if a is None else TensorType(DType.of(a), np.shape(a)) for a in args[0]]
    types = op.infer_shape(ins)
    if len(types) != len(outs):
        raise ShapeError(
            f"{op.name}: infer_shape gives {len(types)} outputs and reference {len(outs)}"
            f"{place_of(type(op), 'reference')}"
        )
    for i, (t, a) in enumerate(zip(types, outs, strict=True)):
        if tuple(hint_of(t.shape)) != np.shape(a):
            raise ShapeError(
                f"{op.name}: output {i} is of shape {tuple(hint_of(t.shape))} by infer_shape and of {np.shape(a)} by "
                f"reference, for inputs {', '.join(map(str, ins))}{place_of(type(op), 'infer_shape')}"
            )
    # An input that is returned is copied: the caller's array stays its own.
    return [
        np.asarray(a).astype(t.dtype.np, copy=not (isinstance(a, np.ndarray) and a.flags.writeable))
        for t, a in zip(types, outs, strict=True)
    ]


def _read_only(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of `reference` with arrays that it cannot change: they are a caller's, or a model's constants."""
    views = [a.view() if isinstance(a, np.ndarray) else a for a in args[0]]
    for view in views:
        if isinstance(view, np.ndarray):
            view.flags.writeable = False
    return (views, *args[1:])


_CHECKS = {
    "check_shape": _check_nothing,
    "infer_shape": _check_types,
    "reference": _check_arrays,
    "check_contents": None,
    "cost": _check_cost,
}
