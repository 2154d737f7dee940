"""Classes of onnxruntime's API that Opalite does not support: using one raises UnsupportedApiError with advice."""

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


def _unsupported(name: str, why: str, about: str, *functions: str) -> Any:
    """A class whose constructor and static `functions` raise UnsupportedApiError. about: for its docstring."""

    def construct(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedApiError(f"{name}: {why}")

    def call(*args: Any, **kwargs: Any) -> NoReturn:
        """Raise UnsupportedApiError."""
        raise UnsupportedApiError(why)

    members = {"__doc__": f"Unsupported: {about}.", "__module__": __name__, "__init__": construct}
    return type(name, (), members | dict.fromkeys(functions, staticmethod(call)))


SparseTensor = _unsupported(
    "SparseTensor",
    _SPARSE,
    "a sparse tensor",
    "sparse_coo_from_numpy",
    "sparse_csr_from_numpy",
    "blocksparse_from_numpy",
)
LoraAdapter = _unsupported("LoraAdapter", _LORA, "weights of a LoRA adapter")
AdapterFormat = _unsupported("AdapterFormat", _LORA, "the file of a LoraAdapter", "read_adapter")
ModelCompiler = _unsupported(
    "ModelCompiler", _CONTEXT, "the compiler of EPContext models; `opalite.compile` writes bundles"
)
OrtEpContextData = _unsupported("OrtEpContextData", _CONTEXT, "a part of an EPContext model")
OrtEpContextDataBuffer = _unsupported("OrtEpContextDataBuffer", _CONTEXT, "a part of an EPContext model")
OrtExternalInitializerInfo = _unsupported(
    "OrtExternalInitializerInfo", _CONTEXT, "the position of an initializer that ModelCompiler writes"
)
ModelPackage = _unsupported(
    "ModelPackage", _PACKAGE, "a writable folder of variants of a model", "open", "compute_directory_hash"
)
ModelPackageContext = _unsupported("ModelPackageContext", _PACKAGE, "a read-only ModelPackage")
ModelPackageComponentContext = _unsupported(
    "ModelPackageComponentContext", _PACKAGE, "the selected variant of a ModelPackage"
)
ModelPackageOptions = _unsupported(
    "ModelPackageOptions", _PACKAGE, "the options that select a variant of a ModelPackage"
)
OrtSyncStream = _unsupported("OrtSyncStream", _STREAM, "a queue of a device")
