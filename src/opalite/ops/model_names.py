"""Names by which models know the operators that other packages register."""

from __future__ import annotations

from typing import Any

from .operator import Op

TFLITE_DOMAIN = "tflite"
"""Domain of TensorFlow Lite's operators."""

MODEL_NAMES: dict[tuple[str, str], dict[int, type[Op]]] = {}
"""Operators by domain and name in models, and by the first version of the domain that has them."""

ATTRIBUTE_TYPES: dict[Any, type[Any]] = {
    bool: bool,
    int: int,
    float: float,
    str: str,
    tuple[int, ...]: int,
    tuple[float, ...]: float,
    tuple[str, ...]: str,
}
"""Types of the attributes of registered operators, and the type of one element."""
