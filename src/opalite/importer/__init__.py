"""Importer: turns an ONNX file into Graphs; one small function imports each ONNX operator and version.

Dynamic dimensions become symbols (`ir/symbols`): one Graph serves all sizes for which the guards of its trace hold. If
shapes depend on data (NonZero, a Reshape to a computed shape) or control flow depends on values (If, Loop), the model
is split into segments. Each segment is a Graph followed by tasks on the host. Most models are one segment.

    model = load_model("model.onnx")                    # or bytes, or a ModelProto
    feeds = check_feeds(model, {"x": array})            # raises InputError for an input that does not fit

    def run(importer, feeds):                           # also the Runner of loop bodies
        import_run = ImportRun(importer, feeds, run)
        while import_run.segment is not None:
            s = import_run.segment                      # s.graph: compile once (store the result in s.compiled)
            outputs = execute(s, import_run.sizes, import_run.feeds)   # in the order of s.graph.outputs
            import_run.advance(outputs)
        return import_run.outputs                       # in the order of model.outputs

    outputs = run(model.importer, feeds)

`sizes` are the values of s.graph.trace.symbols; the trace is None if all sizes are plain numbers. `s.graph_at(sizes)`
is the graph with the symbols replaced by these numbers. Segments are cached by the dtypes, ranks and static dimensions
of their inputs and by their guards, and by contents only for inputs whose contents an operator needs and that are no
sizes. Sizes for which the guards hold get the same Segment object again.

`feeds` are the values of `s.graph.inputs`. An array stays on the device between segments unless `s.on_host[i]` is true
for output i. Any object with `shape` and `dtype` can replace an array (it needs `__array__` if the contents are read on
the host). TensorTypes as feeds import the model without data; ContentsNeededError is raised if contents are needed.

    formats.py   finds the format: onnx_file.py reads ONNX, tflite/read TensorFlow Lite, paddle/read Paddle
    proto/      ONNX messages: decoding, checks, encoding   walk/    iteration over nodes, control flow, segments, tasks
    onnx/  ml/  microsoft/  tflite/  paddle/   a function for each operator, by domain
    host/       operators that run on the host
"""

from .check_feeds import check_feeds
from .formats import load_model
from .model import Model
from .proto.decode import ValueInfo
from .walk.host_tasks import Runner, Task
from .walk.import_run import ImportRun
from .walk.model_importer import ModelImporter
from .walk.node_context import handled_ops
from .walk.segments import Segment
from .walk.symbolic_dims import ContentsNeededError

__all__ = [
    "ContentsNeededError",
    "ImportRun",
    "Model",
    "ModelImporter",
    "Runner",
    "Segment",
    "Task",
    "ValueInfo",
    "check_feeds",
    "handled_ops",
    "load_model",
]
