"""Operators and kernels of your own, registered from outside this package (docs/add-a-kernel.md).

    from opalite.kernel import STORAGE, Kernel, Launch, Operator, register_kernel, register_operator

    @register_operator(domain="com.example")
    class Roll(Operator):
        shift: int = 1

        def reference(self, arrays):
            return [np.roll(arrays[0], self.shift)]

    @register_kernel
    class RollFlat(Kernel):  # roll.cl, beside the module roll.py, has its OpenCL C
        op = "Roll"

        def launch(self, p, params):
            x, y = p.node.x, p.node.y
            args = {"x": x, "y": y, "count": y.type.count, "shift": p.node.as_(Roll).shift}
            return [Launch("roll", args, (y.type.count,), defines={"STORAGE": STORAGE[y.type.storage]})]

A module registers when it is imported: by an import, by OPALITE_KERNELS or the option --kernels, or as an entry point
of the group `opalite.kernels` of an installed package. `opalite kernel new` writes such a module, `opalite kernel test`
and `bench` check and time it.
"""

from ..errors import PluginError
from ..ir.dtype import DType
from ..ir.graph import Node, Value
from ..ir.load_plugins import load_plugin
from ..ir.place import FLAT, IMAGE, Layout, packed
from ..ir.tensor_type import TensorType
from ..kernels.kernel import Binding, Kernel, Problem, flat_binding, uniform_binding
from ..kernels.launch import STORAGE, Launch, Local, Scratch, Weight, ceil_div, make_table
from ..ops.operator import Cost, moved_bytes, need, tensor
from ..ops.operator import Op as Operator
from .case import Case, expression, from_record, make_operator, type_of
from .register_kernel import register_kernel
from .register_operator import register_operator

__all__ = [
    "FLAT",
    "IMAGE",
    "STORAGE",
    "Binding",
    "Case",
    "Cost",
    "DType",
    "Kernel",
    "Launch",
    "Layout",
    "Local",
    "Node",
    "Operator",
    "PluginError",
    "Problem",
    "Scratch",
    "TensorType",
    "Value",
    "Weight",
    "ceil_div",
    "expression",
    "flat_binding",
    "from_record",
    "load_plugin",
    "make_operator",
    "make_table",
    "moved_bytes",
    "need",
    "packed",
    "register_kernel",
    "register_operator",
    "tensor",
    "type_of",
    "uniform_binding",
]
