"""What execution providers mean, for machines with other devices than this one's."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from opalite.errors import OptionError
from opalite.ir.device.device_info import DeviceInfo
from opalite.run.api.options.execution_providers import (
    DeviceChoice,
    check_provider_names,
    check_providers,
    choose,
    request_by_policy,
)
from opalite.run.api.options.ort_enums import OrtExecutionProviderDevicePolicy as Policy


def device(id_: str, kind: str, vendor: str) -> DeviceInfo:
    return DeviceInfo(name=f"{vendor} something", id=id_, kind=kind, vendor=vendor)


CPU = device("pocl:cpu:0", "cpu", "GenuineIntel")
NVIDIA = device("nvidia:gpu:0", "gpu", "NVIDIA Corporation")
NVIDIA_1 = device("nvidia:gpu:1", "gpu", "NVIDIA Corporation")
INTEL = device("intel:gpu:0", "gpu", "Intel(R) Corporation")


def chosen(providers: Any, devices: list[DeviceInfo], default: str | None = None) -> DeviceChoice:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return choose(check_providers(providers, None), default, lambda: devices)


CASES = [
    (None, [CPU, NVIDIA], None),
    (["OpenCLExecutionProvider", "CPUExecutionProvider"], [CPU, NVIDIA], None),
    (["CPUExecutionProvider"], [CPU, NVIDIA], "cpu"),
    (["CPUExecutionProvider"], [NVIDIA], None),
    (["CUDAExecutionProvider", "CPUExecutionProvider"], [CPU, NVIDIA], "gpu"),
    (["CUDAExecutionProvider", "CPUExecutionProvider"], [CPU], "cpu"),
    (["CUDAExecutionProvider"], [CPU], None),
    (["CUDAExecutionProvider", "CPUExecutionProvider"], [CPU, INTEL], "gpu"),
    (["CUDAExecutionProvider"], [CPU, INTEL, NVIDIA], "nvidia"),
    (["OpenVINOExecutionProvider"], [CPU, INTEL, NVIDIA], "intel"),
    ([("CUDAExecutionProvider", {"device_id": 1})], [CPU, NVIDIA, NVIDIA_1], "nvidia:gpu:1"),
    (["TensorrtExecutionProvider", "CUDAExecutionProvider"], [CPU, NVIDIA], "gpu"),
    (["DmlExecutionProvider"], [CPU, INTEL], "gpu"),
    (["NothingProvider", "CPUExecutionProvider"], [CPU, NVIDIA], "cpu"),
    ([("OpenCLExecutionProvider", {"device": "0:1"})], [CPU, NVIDIA], "0:1"),
    ([("OpenCLExecutionProvider", {"device_id": "1"})], [CPU, NVIDIA], "nvidia:gpu:0"),
]


@pytest.mark.parametrize(("providers", "devices", "request_"), CASES, ids=lambda v: str(v)[:60])
def test_the_device_that_is_meant(providers: Any, devices: list[DeviceInfo], request_: str | None) -> None:
    assert chosen(providers, devices).device == request_


def test_the_environment_counts_for_more_than_a_name() -> None:
    assert chosen(["CPUExecutionProvider"], [CPU, NVIDIA], "gpu").device is None
    assert chosen([("OpenCLExecutionProvider", {"device": "cpu"})], [CPU, NVIDIA], "gpu").device == "cpu"


def test_names_that_are_reported() -> None:
    assert chosen(["CPUExecutionProvider"], [CPU]).names == ["CPUExecutionProvider"]
    assert chosen(["CUDAExecutionProvider"], [CPU, INTEL]).names == ["OpenCLExecutionProvider", "CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("providers", "said"),
    [
        ([("OpenCLExecutionProvider", {"devise": "gpu"})], "has no option 'devise'; choose device"),
        ([("OpenCLExecutionProvider", {"device_id": "7"})], r"no device_id '7'; the devices are 0: pocl:cpu:0"),
        ([("CUDAExecutionProvider", {"device_id": "one"})], "no device_id 'one'"),
    ],
)
def test_options_that_do_not_fit(providers: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        chosen(providers, [CPU, NVIDIA])


def test_warnings() -> None:
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider names.*takes its place"):
        check_providers(["CUDAExecutionProvider"], None)
    with pytest.warns(UserWarning, match="Duplicate provider"):
        check_providers(["CPUExecutionProvider"] * 2, None)
    with pytest.warns(UserWarning, match="should be a list"):
        assert check_providers("CPUExecutionProvider", None)[0] == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="no OpenCL CPU device is installed"):
        choose((["CPUExecutionProvider"], [{}]), None, lambda: [NVIDIA])
    with pytest.raises(OptionError, match="Unknown Provider Type: Nope"):
        check_provider_names(["CPUExecutionProvider", "Nope"])


@pytest.mark.parametrize(
    ("policy", "devices", "want"),
    [
        (Policy.PREFER_CPU, [CPU, NVIDIA], "cpu"),
        (Policy.PREFER_GPU, [CPU, NVIDIA], "gpu"),
        (Policy.PREFER_GPU, [CPU], None),
        (Policy.MAX_PERFORMANCE, [CPU], None),
    ],
)
def test_policies(policy: Policy, devices: list[DeviceInfo], want: str | None) -> None:
    assert request_by_policy(policy, devices) == want
