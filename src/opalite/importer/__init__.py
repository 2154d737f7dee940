"""From an ONNX file to Graphs: one small function for each ONNX operator and version, and what walks them.

Open dimensions are symbols (`ir/symbols`): a Graph serves all sizes for which the guards of its trace hold. Where
shapes depend on data (NonZero, a Reshape to a computed shape) or control flow on values (If, Loop), the model falls
into segments: each a Graph of its own, with tasks on the host between them. Most models are one segment.

    model = load_model("model.onnx")                    # or bytes, or a ModelProto
    feeds = check_feeds(model, {"x": array})            # InputError sentences for what does not fit

    def run(importer, feeds):                           # also the Runner of loop bodies
        turn = importer.begin(feeds, run)
        while turn.segment is not None:
            s = turn.segment                            # s.graph: compile once (keep it in s.compiled)
            turn.advance(execute(s, turn.sizes, turn.feeds))    # outputs in the order of s.graph.outputs
        return turn.outputs                             # in the order of model.outputs

    outputs = run(model.importer, feeds)

`turn.sizes` are the values of s.graph.trace.symbols (the trace is None where all sizes are plain numbers), and
`s.graph_at(turn.sizes)` is the graph with those in their place. Segments are kept by dtypes, ranks and closed
dimensions of what flows into them, by guards, and by contents only where an operator asked for some that are no sizes:
sizes for which the guards hold meet the same Segment object again. `turn.feeds` belong to `s.graph.inputs`; an array
stays on the device between segments unless `s.on_host[i]` says that output i is wanted on the host: anything with
`shape` and `dtype` may stand for an array (and `__array__` if it is wanted). To import without data, feed TensorTypes:
ContentsNeededError if contents are needed.

    proto/      ONNX messages decoded, checked, encoded     walk/    the walk over nodes, control flow, segments, tasks
    onnx/  ml/  microsoft/   one function for each operator and version, by domain; shared/ what they share
    host/       operators that run on the host
"""

from .check_feeds import check_feeds
from .onnx_file import Model, load_model
from .op_registry import handled_ops
from .proto.decode import ValueInfo
from .walk.graph_walk import ContentsNeededError
from .walk.host_tasks import Runner, Task
from .walk.import_run import ModelImporter, Run
from .walk.segments import Segment

__all__ = [
    "ContentsNeededError",
    "Model",
    "ModelImporter",
    "Run",
    "Runner",
    "Segment",
    "Task",
    "ValueInfo",
    "check_feeds",
    "handled_ops",
    "load_model",
]
