"""Files with a single TensorProto: the .pb files of ONNX's test data."""

from __future__ import annotations

import os
from pathlib import Path

import onnx

from ...errors import ModelFormatError
from .decode import Array, TensorReader


def load_tensor_file(path: str | os.PathLike[str]) -> Array:
    """Load the array of a file with one serialised TensorProto; external data is read from its folder.

    ModelFormatError if the file is unreadable or no TensorProto.
    """
    where = Path(path)
    try:
        proto = onnx.TensorProto.FromString(where.read_bytes())
    except OSError as e:
        raise ModelFormatError(f"'{where}' cannot be read: {e.strerror or e}") from e
    except Exception as e:  # protobuf's DecodeError; this package does not depend on protobuf
        raise ModelFormatError(f"'{where}' is not a complete TensorProto: it is damaged or truncated") from e
    if not proto.data_type:
        raise ModelFormatError(f"'{where}' holds no tensor: it is empty or of another format than TensorProto")
    return TensorReader(where.parent).dense(proto)
