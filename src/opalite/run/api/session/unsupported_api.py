"""What onnxruntime's API has and Opalite does not: each name says so in a sentence when it is used."""

from __future__ import annotations

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


class _Refused:
    """A class of onnxruntime's that cannot be made."""

    _why = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedApiError(f"{type(self).__name__}: {self._why}")


class SparseTensor(_Refused):
    """Refused: a tensor with few elements."""

    _why = _SPARSE

    @classmethod
    def sparse_coo_from_numpy(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """UnsupportedApiError."""
        raise UnsupportedApiError(_SPARSE)

    @classmethod
    def sparse_csr_from_numpy(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """UnsupportedApiError."""
        raise UnsupportedApiError(_SPARSE)

    @classmethod
    def blocksparse_from_numpy(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """UnsupportedApiError."""
        raise UnsupportedApiError(_SPARSE)


class LoraAdapter(_Refused):
    """Refused: weights that are added to a model's."""

    _why = _LORA


class AdapterFormat(_Refused):
    """Refused: the file of a LoraAdapter."""

    _why = _LORA

    @staticmethod
    def read_adapter(file_path: Any) -> NoReturn:
        """UnsupportedApiError."""
        raise UnsupportedApiError(_LORA)


class ModelCompiler(_Refused):
    """Refused: `opalite.compile` writes what starts fast on OpenCL devices."""

    _why = _CONTEXT


class OrtEpContextData(_Refused):
    """Refused: a part of an EPContext model."""

    _why = _CONTEXT


class OrtEpContextDataBuffer(_Refused):
    """Refused: a part of an EPContext model."""

    _why = _CONTEXT


class OrtExternalInitializerInfo(_Refused):
    """Refused: where ModelCompiler puts an initializer."""

    _why = _CONTEXT


class ModelPackage(_Refused):
    """Refused: a folder of variants of a model, to be changed."""

    _why = _PACKAGE

    @staticmethod
    def open(*args: Any, **kwargs: Any) -> NoReturn:
        """UnsupportedApiError."""
        raise UnsupportedApiError(_PACKAGE)

    @staticmethod
    def compute_directory_hash(*args: Any, **kwargs: Any) -> NoReturn:
        """UnsupportedApiError."""
        raise UnsupportedApiError(_PACKAGE)


class ModelPackageContext(_Refused):
    """Refused: a ModelPackage, to be read."""

    _why = _PACKAGE


class ModelPackageComponentContext(_Refused):
    """Refused: the variant of a ModelPackage that was selected."""

    _why = _PACKAGE


class ModelPackageOptions(_Refused):
    """Refused: what a variant of a ModelPackage is selected by."""

    _why = _PACKAGE


class OrtSyncStream(_Refused):
    """Refused: a queue of a device."""

    _why = _STREAM
