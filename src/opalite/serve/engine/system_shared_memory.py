"""SystemSharedMemory: regions of POSIX shared memory that clients of this machine register for tensors.

https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_shared_memory.md

Regions are read and written by file calls, never mapped: a client may shorten its memory at any time, and an access
past the end of a mapped file ends the process. So an input is a copy, which a client cannot change after the checks.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import numpy as np

from ..wire.datatypes import raw_from_array
from ..wire.infer_messages import InferRequest, InferResponse, Parameter, Tensor
from ..wire.memory_budget import Account
from ..wire.serve_errors import Invalid, TooLarge, Unsupported

REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
_FOLDER = "/dev/shm"
_KEY = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9_.\-]{0,254}")
_MAX_REGIONS = 1024
_MAX_NAME = 255


class Region:
    """A registered region. Its file is closed when it is unregistered and no request uses it any more."""

    def __init__(self, name: str, key: str, offset: int, nbytes: int) -> None:
        """Invalid if there is no such memory, or if it is smaller than `offset` and `nbytes` say."""
        self.name, self.key, self.offset, self.nbytes = name, key, offset, nbytes
        path = os.path.join(_FOLDER, key.removeprefix("/"))
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            raise Invalid(f"region '{name}': shared memory '{key}' cannot be opened: {e.strerror}") from None
        self._file = os.fdopen(fd, "r+b", buffering=0)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Invalid(f"region '{name}': '{key}' is no shared memory")
        self._check_end(offset + nbytes)

    def read(self, where: str, at: int, nbytes: int) -> memoryview:
        """A copy of `nbytes` bytes from `at` on. Invalid past the end of the region, or of its memory."""
        start = self._place(where, at, nbytes)
        copy = np.empty(nbytes, np.uint8).data
        done = 0
        while done < nbytes:
            count = os.preadv(self._file.fileno(), [copy[done:]], start + done)
            if not count:
                self._check_end(start + nbytes)
                raise Invalid(f"{where}: region '{self.name}' ended while it was read")
            done += count
        return copy

    def write(self, where: str, at: int, data: memoryview) -> None:
        """Write `data` from `at` on. Invalid past the end of the region, or of its memory."""
        start = self._place(where, at, data.nbytes)
        self._check_end(start + data.nbytes)  # a write past the end would lengthen the file
        done = 0
        while done < data.nbytes:
            done += os.pwritev(self._file.fileno(), [data[done:]], start + done)

    def _place(self, where: str, at: int, nbytes: int) -> int:
        if at + nbytes > self.nbytes:
            raise Invalid(
                f"{where}: {nbytes} bytes from byte {at} on are past the end of region '{self.name}' of {self.nbytes} "
                "bytes"
            )
        return self.offset + at

    def _check_end(self, end: int) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if size < end:
            raise Invalid(
                f"region '{self.name}': shared memory '{self.key}' has {size} bytes, and the region ends at {end}"
            )


class SystemSharedMemory:
    """The registered regions, by name."""

    def __init__(self, is_offered: bool = True) -> None:
        self._regions: dict[str, Region] = {}
        self._is_offered = is_offered

    def of(self, host: str, account: Account | None = None) -> ClientRegions:
        """The regions as a client at the address `host` may use them. account: counts what is read."""
        return ClientRegions(self._regions, self._is_offered and _is_this_machine(host), account)


class ClientRegions:
    """The regions as one client sees them. All calls: Unsupported for a client of another machine."""

    def __init__(self, regions: dict[str, Region], allowed: bool, account: Account | None) -> None:
        self._regions, self._allowed, self._account = regions, allowed, account

    def register(self, name: str, key: Any, offset: Any, nbytes: Any) -> None:
        """Register a region: `nbytes` bytes from `offset` on of the memory `key`. Invalid, TooLarge."""
        self._check()
        if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
            raise Invalid(f"a region's name has 1 to {_MAX_NAME} printable characters, got {name[:64]!r}")
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise Invalid(
                f"region '{name}': 'key' is the name of shared memory as shm_open takes it, such as /inputs, with "
                f"letters, digits, '_', '-' and '.', got {str(key)[:64]!r}"
            )
        for what, value, least in (("offset", offset, 0), ("byte_size", nbytes, 1)):
            if not _is_number(value, least):
                raise Invalid(f"region '{name}': '{what}' is a whole number from {least} on, got {str(value)[:32]!r}")
        if name in self._regions:
            raise Invalid(f"region '{name}' is registered already; unregister it first")
        if len(self._regions) >= _MAX_REGIONS:
            raise TooLarge(f"{_MAX_REGIONS} regions are registered already; unregister some")
        self._regions[name] = Region(name, key, offset, nbytes)

    def unregister(self, name: str = "") -> None:
        """Unregister a region, all without a name. An unknown name has no effect, as in Triton."""
        self._check()
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """Name, key, offset and byte_size of a region, or of all. Invalid for an unknown name."""
        if not self._allowed and not name:
            return []
        found = [self._find(name)] if name else list(self._regions.values())
        return [{"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.nbytes} for r in found]

    def read(self, where: str, parameters: Mapping[str, Parameter]) -> memoryview | None:
        """The bytes of an input, None if they are not in a region. Invalid, MemoryFull."""
        if not any(n in parameters for n in (REGION, SIZE, OFFSET)):
            return None
        region, at, nbytes = self._part(where, parameters)
        if self._account is not None:
            self._account.add(nbytes)
        return region.read(where, at, nbytes)

    def outputs_of(self, request: InferRequest) -> RegionOutputs:
        """The outputs that a request wants in regions. Invalid."""
        wanted = {}
        for output in request.outputs:
            if any(n in output.parameters for n in (REGION, SIZE, OFFSET)):
                wanted[output.name] = self._part(f"output '{output.name}'", output.parameters)
        return RegionOutputs(wanted)

    def _part(self, where: str, parameters: Mapping[str, Parameter]) -> tuple[Region, int, int]:
        """The region, and the offset and size within it, that a tensor's parameters name."""
        name, at, nbytes = parameters.get(REGION), parameters.get(OFFSET, 0), parameters.get(SIZE)
        if not isinstance(name, str):
            raise Invalid(f"{where}: '{REGION}' is the name of a region, got {str(name)[:64]!r}")
        if not _is_number(at, 0) or not _is_number(nbytes, 0):
            raise Invalid(f"{where}: '{OFFSET}' and '{SIZE}' are numbers of bytes, got {at!r} and {nbytes!r}")
        region = self._find(name, where)
        region._place(where, int(at), int(nbytes))  # type: ignore[arg-type]
        return region, int(at), int(nbytes)  # type: ignore[arg-type]

    def _find(self, name: str, where: str = "") -> Region:
        self._check()
        if name not in self._regions:
            known = ", ".join(map(repr, list(self._regions)[:8])) or "none"
            raise Invalid(f"{where}{where and ': '}there is no region '{name[:64]}'; registered are {known}")
        return self._regions[name]

    def _check(self) -> None:
        if not self._allowed:
            raise Unsupported(
                "shared memory is offered to clients of this machine only, at a loopback address, unless the server "
                "has --no-shared-memory; send tensors in requests"
            )
        if sys.platform != "linux":
            raise Unsupported("shared memory regions are offered on Linux only; send tensors in requests")


class RegionOutputs:
    """Writes outputs of one request to the regions that it names."""

    def __init__(self, wanted: Mapping[str, tuple[Region, int, int]]) -> None:
        self._wanted = wanted

    def apply(self, response: InferResponse) -> InferResponse:
        """The response with parameters in place of these outputs' data. Invalid if a part is too small."""
        if not self._wanted:
            return response
        outputs = tuple(self._moved(t) if t.name in self._wanted else t for t in response.outputs)
        return replace(response, outputs=outputs)

    def _moved(self, tensor: Tensor) -> Tensor:
        region, at, room = self._wanted[tensor.name]
        where = f"output '{tensor.name}'"
        data = raw_from_array(tensor.datatype, tensor.array)
        if data.nbytes > room:
            raise Invalid(f"{where} has {data.nbytes} bytes, and the request gives it {room} of region '{region.name}'")
        region.write(where, at, data)
        place: dict[str, Parameter] = {REGION: region.name, SIZE: data.nbytes}
        return replace(tensor, place=place | ({OFFSET: at} if at else {}))


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 62


def _is_this_machine(host: str) -> bool:
    """Whether an address is of this machine: others do not share its memory."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
