"""Linked kernels get the addresses of bound buffers in their one argument, and refuse buffers that overlap."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from opalite.run.execute.memory.io_transfer import UNBOUND
from opalite.run.execute.strategies.launch_parameter_buffer import ArgumentBlock
from opalite.run.execute.strategies.linked_ptx_kernels import LinkedKernels

SYNC, TABLE = 1, 2
OWN = {3: 1000, 4: 2000, 5: 3000}  # addresses by slot


class Launch:
    """Records the arguments that were set."""

    def __init__(self) -> None:
        self.arguments: list[list[int]] = []

    def set_arg(self, index: int, value: Any) -> None:
        assert index == 0
        self.arguments.append(np.frombuffer(value.tobytes(), np.uint64).tolist())


def staging(address: int, nbytes: int = 64) -> Any:
    return SimpleNamespace(buffer=SimpleNamespace(at=address), nbytes=nbytes, device_address=None)


def linked(*stretches: Sequence[int], shared: Sequence[int] = ()) -> tuple[LinkedKernels, list[Launch], list[int]]:
    """Linked kernels over slots, their launches, and the addresses that were looked up."""
    kernels, asked = object.__new__(LinkedKernels), list[int]()

    def addresses_of(buffers: Sequence[Any]) -> list[int]:
        asked.extend(b.at for b in buffers)
        return [b.at for b in buffers]

    kernels._rt = SimpleNamespace(addresses_of=addresses_of)  # type: ignore[assignment]
    kernels._bound, kernels._shared, kernels._blocks = UNBOUND, set(shared), []
    kernels._own = {slot: (OWN[slot], 64) for slots in stretches for slot in slots}
    launches: list[Launch] = []
    for slots in stretches:
        block = ArgumentBlock([SYNC, TABLE, *(OWN[s] for s in slots)], slots)
        block.launch = launch = Launch()  # type: ignore[assignment]
        kernels._blocks.append(block)
        launches.append(launch)
    return kernels, launches, asked


def test_bound_and_back() -> None:
    kernels, (first, second), asked = linked([3, 4], [4, 5])
    x, y = staging(7000), staging(8000)
    assert kernels.bind({3: x})
    assert kernels.bind({3: x, 5: y})
    assert kernels.bind({5: y})
    assert kernels.bind(UNBOUND)
    assert first.arguments == [[SYNC, TABLE, 7000, 2000], [SYNC, TABLE, 1000, 2000]]
    assert second.arguments == [[SYNC, TABLE, 2000, 8000], [SYNC, TABLE, 2000, 3000]]
    assert asked == [7000, 8000], "each address is looked up once"


def test_equal_bindings_set_nothing() -> None:
    kernels, (launch,), _ = linked([3, 4])
    bound = {4: staging(7000)}
    assert kernels.bind(bound)
    assert kernels.bind(bound)
    assert kernels.bind(dict(bound))
    assert len(launch.arguments) == 1


def test_a_slot_of_two_kernels() -> None:
    kernels, (first, second), _ = linked([3, 4], [4, 5])
    assert kernels.bind({4: staging(7000)})
    assert first.arguments == [[SYNC, TABLE, 1000, 7000]]
    assert second.arguments == [[SYNC, TABLE, 7000, 3000]]


def test_slots_of_other_launches_do_not_matter() -> None:
    kernels, (launch,), asked = linked([3], shared=[9])
    assert kernels.bind({9: staging(7000), 10: staging(7000)})
    assert not launch.arguments
    assert not asked


def test_overlapping_buffers_are_refused() -> None:
    kernels, (launch,), _ = linked([3, 4, 5])
    fits = {3: staging(7000), 4: staging(7064)}
    assert kernels.bind(fits)
    assert not kernels.bind({3: fits[3], 4: staging(7063)})
    assert not kernels.bind({3: fits[3], 4: fits[3]})
    assert not kernels.bind({3: staging(OWN[5] + 32)}), "memory of another slot"
    assert kernels.bind(fits)
    assert len(launch.arguments) == 1


def test_memory_of_several_slots_is_not_replaced() -> None:
    kernels, (launch,), _ = linked([3, 4], shared=[4])
    assert not kernels.bind({4: staging(7000)})
    assert not launch.arguments


def test_the_argument() -> None:
    block = ArgumentBlock([SYNC, TABLE, 1000], [3])
    assert isinstance(block.argument, np.void)
    assert block.argument.nbytes == 24
    assert np.frombuffer(block.argument.tobytes(), np.uint64).tolist() == [SYNC, TABLE, 1000]
