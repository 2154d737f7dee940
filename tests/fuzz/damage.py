"""Ways to damage a file: its bytes, the fields of an ONNX model, or the files of a cache."""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import onnx

HUGE = (-1, 0, 1, 2**31 - 1, -(2**31), 2**31, 2**40, 2**60, 2**63 - 1, -(2**63), 255, 7)
PLACES = ("../outside.bin", "/etc/passwd", "a/../../b", "\0", "x" * 5000, "", "data.bin", "/proc/self/mem")


def damage_bytes(raw: bytes, other: bytes, rng: random.Random) -> tuple[bytes, str]:
    """`raw` with one damage, and its name. Half of them strike the first 4,000 bytes, where descriptions are."""
    b = bytearray(raw or b"\0")

    def place() -> int:
        return rng.randrange(len(b)) if rng.random() < 0.5 else rng.randrange(min(len(b), 4000))

    def some(most: int) -> bytes:
        return rng.randbytes(rng.randint(1, most))

    what = rng.choice(
        ("bit", "bits", "cut", "byte", "zeros", "spliced", "deleted", "inserted", "huge", "swapped", "noise")
    )
    at = place()
    if what == "bit":
        b[at] ^= 1 << rng.randrange(8)
    elif what == "bits":
        for _ in range(rng.randint(2, 30)):
            b[place()] ^= 1 << rng.randrange(8)
    elif what == "cut":
        del b[at:]
    elif what == "byte":
        b[at] = rng.randrange(256)
    elif what == "zeros":
        end = min(len(b), at + rng.randint(1, 300))
        b[at:end] = bytes(end - at)
    elif what == "spliced":
        start, count = rng.randrange(len(other) or 1), rng.randint(1, 300)
        b[at : at + count] = other[start : start + count]
    elif what == "deleted":
        del b[at : at + rng.randint(1, 50)]
    elif what == "inserted":
        b[at:at] = some(50)
    elif what == "huge":
        b[at : at + 4] = bytes([255, 255, 255, rng.randrange(256)])
    elif what == "swapped":
        to, count = place(), rng.randint(1, 64)
        one, two = bytes(b[at : at + count]), bytes(b[to : to + count])
        b[at : at + count], b[to : to + count] = two, one
    else:
        noise = some(300)
        b[at : at + len(noise)] = noise
    return bytes(b), what


def damage_proto(raw: bytes, rng: random.Random, kind: Any = onnx.ModelProto) -> tuple[bytes, str]:
    """A model with one to three of its fields changed, and their names: a whole message that says something else."""
    model = kind.FromString(raw)
    done = [_damage_field(model, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return model.SerializeToString(), ", ".join(done)


def _damage_field(model: Any, rng: random.Random) -> str:
    """Change one field that is set, reached by a random way down."""
    message, name = model, "model"
    while True:
        fields = [(f, v) for f, v in message.ListFields() if f.name not in ("doc_string", "raw_data", "producer_name")]
        if not fields:
            return f"{name}: nothing"
        f, value = rng.choice(fields)
        name = f"{message.DESCRIPTOR.name}.{f.name}"
        repeated = hasattr(value, "append") or hasattr(value, "add")
        if f.type == f.TYPE_MESSAGE:
            if repeated and rng.random() < 0.2:
                return f"{name}: {_damage_list(value, rng)}"
            if name == "GraphProto.initializer" and rng.random() < 0.2:
                return f"{name}: {_move_outside(rng.choice(value), rng)}"
            message = rng.choice(value) if repeated else value
            continue
        if repeated and rng.random() < 0.3:
            return f"{name}: {_damage_list(value, rng)}"
        if repeated:
            i = rng.randrange(len(value))
            value[i] = _other(model, f, value[i], rng)
        else:
            setattr(message, f.name, _other(model, f, value, rng))
        return name


def _damage_list(values: Any, rng: random.Random) -> str:
    what = rng.choice(("removed", "doubled", "reversed", "emptied"))
    items = list(values)
    if what == "removed":
        del items[rng.randrange(len(items))]
    elif what == "doubled":
        items.insert(rng.randrange(len(items) + 1), rng.choice(items))
    elif what == "reversed":
        items.reverse()
    else:
        items = []
    kept = [type(i).FromString(i.SerializeToString()) if hasattr(i, "SerializeToString") else i for i in items]
    del values[:]
    values.extend(kept)
    return what


def _move_outside(tensor: Any, rng: random.Random) -> str:
    """Say that the data of `tensor` lies in another file."""
    place = rng.choice(PLACES)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    if rng.random() < 0.5:
        tensor.external_data.add(key=rng.choice(("offset", "length")), value=str(rng.choice(HUGE)))
    return f"data in {place[:20]!r}"


def _names(model: Any) -> list[str]:
    """Names of values and operators of an ONNX model, or of a program of Paddle."""
    if hasattr(model, "graph"):
        return [n for node in model.graph.node for n in (*node.input, *node.output, node.op_type)]
    ops = [op for block in model.blocks for op in block.ops]
    return [n.decode() for op in ops for n in (op.type, *(n for s in (*op.inputs, *op.outputs) for n in s.arguments))]


def _other(model: Any, f: Any, value: Any, rng: random.Random) -> Any:
    """Another value for the field `f`, of its type."""
    if f.type in (f.TYPE_STRING, f.TYPE_BYTES):
        others = ["", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "x" * 3000, "Loop", "If"]
        text = rng.choice([*(_names(model) or ["x"]), *others])
        return text if f.type == f.TYPE_STRING else text.encode()
    if f.type in (f.TYPE_FLOAT, f.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e30, float("inf"), float("nan"), 1e-30, float(value) * 1.5))
    if f.type == f.TYPE_ENUM:
        return rng.choice([v.number for v in f.enum_type.values])
    least, most = (-(2**31), 2**31 - 1) if f.type == f.TYPE_INT32 else (-(2**63), 2**63 - 1)
    if f.type in (f.TYPE_UINT64, f.TYPE_UINT32):
        least, most = 0, 2**64 - 1 if f.type == f.TYPE_UINT64 else 2**32 - 1
    return max(least, min(most, rng.choice((*HUGE, value + 1, value - 1, value * 2, -value))))


def damage_files(folder: Path, rng: random.Random, names: Collection[str] = ()) -> str:
    """Damage one, a few or all files below `folder`; returns how. names: relative to it, of those to damage, if any."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    those = [p for p in files if str(p.relative_to(folder)) in names] or files
    count = rng.choice((1, 1, 1, 2, 5, len(those)))
    done = []
    for path in rng.sample(those, min(count, len(those))):
        how = rng.choice(("bytes", "bytes", "bytes", "gone", "empty", "other", "folder", "link", "loop"))
        other = rng.choice(files)
        if not path.is_file() or not other.is_file():
            continue
        if how == "bytes":
            raw, how = damage_bytes(path.read_bytes(), other.read_bytes(), rng)
            path.write_bytes(raw)
        elif how == "gone":
            path.unlink()
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "other" and other != path:
            path.write_bytes(other.read_bytes())  # which may be a link to it by now
        elif how == "folder":
            path.unlink()
            path.mkdir()
        elif how in ("link", "loop"):
            path.unlink()
            path.symlink_to(other if how == "link" and other != path else path)
        kind = path.relative_to(folder).parts[0]
        done.append(f"{kind}{path.suffix} {how}")
    return f"{len(done)} files: {', '.join(done[:3])}"
