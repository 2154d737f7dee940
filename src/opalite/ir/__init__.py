"""The intermediate representation: types, graph, patch, checker."""

from .check_graph import check_graph
from .constants.lazy_array import Array
from .device.device_info import DeviceInfo
from .dtype import DType
from .graph import Graph, Node, Value
from .patch import Patch, apply_patches
from .place import FLAT, HOST, IMAGE, OPENCL, Layout, LayoutKind, Memory, Place, Target, packed, texel_dims
from .tensor_type import Shape, TensorType

__all__ = [
    "FLAT",
    "HOST",
    "IMAGE",
    "OPENCL",
    "Array",
    "DType",
    "DeviceInfo",
    "Graph",
    "Layout",
    "LayoutKind",
    "Memory",
    "Node",
    "Patch",
    "Place",
    "Shape",
    "Target",
    "TensorType",
    "Value",
    "apply_patches",
    "check_graph",
    "packed",
    "texel_dims",
]
