"""Classes of onnxruntime's API that Opalite does not support: using one raises UnsupportedApiError with advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ....errors import UnsupportedApiError

_SPARSE = (
    "sparse tensors are not offered: OpenCL kernels read dense ones. Give the dense array; sparse initializers of a "
    "model are made dense when it is loaded"
)
_LORA = "LoRA adapters are not offered: merge the adapter into the model's weights"
_CONTEXT = "EPContext models are not offered: opalite.compile('model.onnx', 'model.opal') writes a bundle instead"
_PACKAGE = (
    "model packages are not offered: give InferenceSession the .onnx file of the variant that you want; "
    "opalite.compile('model.onnx', 'model.opal') writes a bundle for a device"
)
_STREAM = "streams are not offered: every run waits until the device has finished"


class _Unsupported:
    """A class whose constructor raises UnsupportedApiError."""

    _why = ""

    def __init_subclass__(cls, why: str) -> None:
        cls._why = why

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedApiError(f"{type(self).__name__}: {self._why}")


def _unsupported(why: str) -> Callable[..., NoReturn]:
    """A static method that raises UnsupportedApiError."""

    def raise_error(*args: Any, **kwargs: Any) -> NoReturn:
        """Raise UnsupportedApiError."""
        raise UnsupportedApiError(why)

    return staticmethod(raise_error)


class SparseTensor(_Unsupported, why=_SPARSE):
    """Unsupported: a sparse tensor."""

    sparse_coo_from_numpy = sparse_csr_from_numpy = blocksparse_from_numpy = _unsupported(_SPARSE)


class LoraAdapter(_Unsupported, why=_LORA):
    """Unsupported: weights of a LoRA adapter."""


class AdapterFormat(_Unsupported, why=_LORA):
    """Unsupported: the file of a LoraAdapter."""

    read_adapter = _unsupported(_LORA)


class ModelCompiler(_Unsupported, why=_CONTEXT):
    """Unsupported: the compiler of EPContext models; `opalite.compile` writes bundles."""


class OrtEpContextData(_Unsupported, why=_CONTEXT):
    """Unsupported: a part of an EPContext model."""


class OrtEpContextDataBuffer(_Unsupported, why=_CONTEXT):
    """Unsupported: a part of an EPContext model."""


class OrtExternalInitializerInfo(_Unsupported, why=_CONTEXT):
    """Unsupported: the position of an initializer that ModelCompiler writes."""


class ModelPackage(_Unsupported, why=_PACKAGE):
    """Unsupported: a writable folder of variants of a model."""

    open = compute_directory_hash = _unsupported(_PACKAGE)


class ModelPackageContext(_Unsupported, why=_PACKAGE):
    """Unsupported: a read-only ModelPackage."""


class ModelPackageComponentContext(_Unsupported, why=_PACKAGE):
    """Unsupported: the selected variant of a ModelPackage."""


class ModelPackageOptions(_Unsupported, why=_PACKAGE):
    """Unsupported: the options that select a variant of a ModelPackage."""


class OrtSyncStream(_Unsupported, why=_STREAM):
    """Unsupported: a queue of a device."""
