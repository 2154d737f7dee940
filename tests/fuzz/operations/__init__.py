"""What graphs are made of, a file a family; importing the package fills the registry."""

from . import (
    attention,
    cast,
    control,
    elementwise,
    index,
    integer,
    movement,
    norm,
    product,
    quantize,
    recurrent,
    reduce,
    resize,
    sequence,
    shape,
    window,
)

__all__ = [
    "attention",
    "cast",
    "control",
    "elementwise",
    "index",
    "integer",
    "movement",
    "norm",
    "product",
    "quantize",
    "recurrent",
    "reduce",
    "resize",
    "sequence",
    "shape",
    "window",
]
