"""The recipes in deploy/: what they name is there, and the server takes the arguments that they give it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from unittest import mock

import click
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from opalite.cli.serve import command
from opalite.serve.grpc.grpc_server import GrpcSettings
from opalite.serve.http.http_server import HttpSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RECIPE = DEPLOY / "docker" / "Dockerfile"
MANIFESTS = sorted(DEPLOY.rglob("*.yaml"))
HEALTH = {"startupProbe": "ready", "readinessProbe": "ready", "livenessProbe": "live"}


def instructions() -> list[tuple[str, str]]:
    """The recipe's instructions, lines joined."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", RECIPE.read_text(), flags=re.MULTILINE))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line]


def read(words: list[str]) -> dict[str, Any]:
    """What `opalite serve` understands by arguments; a UsageError where it does not."""
    with mock.patch.object(click.Command, "invoke", lambda self, context: context.params):
        found: dict[str, Any] = command.main(words, standalone_mode=False)
    return found


def loaded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """File, specification of the pod and container, of all that are whole."""
    for path in MANIFESTS:
        found = loaded(path)
        spec = found["spec"].get("template", found)["spec"] if found["kind"] in ("Deployment", "ServingRuntime") else {}
        for container in spec.get("containers", ()):
            if "image" in container:
                yield path.name, spec, container


def test_the_recipe_copies_what_is_there_and_ends_as_nobody_in_particular() -> None:
    found = instructions()
    copied = [words.split()[:-1] for name, words in found if name == "COPY" and "--from" not in words]
    assert all((ROOT / p).exists() for paths in copied for p in paths if "$" not in p)
    ignored = (RECIPE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    for path in (p for paths in copied for p in paths if "$" not in p):
        assert any(path.startswith(line[1:]) for line in ignored if line.startswith("!")), path
    users = [words for name, words in found if name == "USER"]
    assert users
    assert not users[-1].startswith(("0", "root"))
    names = [name for name, _ in found]
    assert names.index("USER") < [words for _, words in found].index("sh /usr/local/share/opalite/warm.sh /models")


def test_the_recipe_pins_what_it_installs() -> None:
    found = instructions()
    bases = {words.split()[0] for name, words in found if name == "FROM"}
    assert bases == {"${BASE}", "server"}
    (base,) = [words for name, words in found if name == "ARG" and words.startswith("BASE=")]
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+", base), "a tag that names a patch version and a system"
    (install,) = [words for name, words in found if name == "RUN" and "[serve]" in words]
    assert "-c /wheels/constraints.txt" in install
    lines = (RECIPE.parent / "constraints.txt").read_text().splitlines()
    pinned = [re.fullmatch(r"([a-z0-9-]+)==[\w.]+", line) for line in lines if not line.startswith("#")]
    assert all(pinned)
    names = {match[1] for match in pinned if match}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [*map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["serve"]])]
    needed: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        marker = requirement.marker
        if name not in needed and (marker is None or marker.evaluate({"extra": "", "sys_platform": "linux"})):
            needed.add(name)
            waiting += map(Requirement, distribution(name).requires or ())
    assert needed <= names


def test_the_server_without_models_is_a_stage() -> None:
    stages = [words for name, words in instructions() if name == "FROM"]
    assert stages[1:] == ["${BASE} AS server", "server"]
    runtime = loaded(DEPLOY / "kserve" / "serving-runtime.yaml")["spec"]
    assert [f["autoSelect"] for f in runtime["supportedModelFormats"]] == [False]


def test_the_recipe_starts_the_server_and_asks_for_its_health() -> None:
    found = dict(instructions())
    program, *words = json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])
    assert (program, words.pop(0)) == ("opalite", "serve")
    given = read(words)
    assert (given["host"], given["repository"]) == ("0.0.0.0", "/models")
    assert found["EXPOSE"].split() == [str(given["port"]), str(given["grpc_port"])]
    script = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])[-1]
    assert (RECIPE.parent / Path(script).name).exists()


def test_the_warm_step_gives_arguments_that_the_server_takes() -> None:
    text = (RECIPE.parent / "warm.sh").read_text()
    line = next(line for line in text.splitlines() if "opalite serve" in line)
    words = shlex.split(line.replace('"$1"', "models").replace('"$port"', "1"))
    given = read(words[words.index("serve") + 1 : -1])
    assert (given["repository"], given["port"]) == ("models", 1)


def test_there_are_manifests_and_each_says_what_it_is() -> None:
    assert {loaded(p)["kind"] for p in MANIFESTS} == {
        *("Kustomization", "Deployment", "Service", "ServingRuntime", "InferenceService")
    }
    for path in MANIFESTS:
        found = loaded(path)
        assert found["apiVersion"]
        if found["kind"] == "Kustomization":
            named = found.get("resources", []) + [p["path"] for p in found.get("patches", [])]
            assert named
            assert all((path.parent / name).exists() for name in named)
        else:
            assert found["metadata"]["name"]


@pytest.mark.parametrize("name, spec, container", list(containers()), ids=lambda v: v if isinstance(v, str) else "")
def test_containers_have_ports_probes_and_no_rights(name: str, spec: Any, container: Any) -> None:
    given = read([word.replace("{{.Name}}", "name") for word in container["args"]])
    assert given["host"] == "0.0.0.0"
    ports = {p.get("name"): p["containerPort"] for p in container["ports"]}
    served = {given["port"], given["grpc_port"], given["metrics_port"]}
    assert set(ports.values()) <= served
    for probe, state in HEALTH.items():
        asked = container[probe]["httpGet"]
        assert asked["path"] == f"/v2/health/{state}"
        assert ports.get(asked["port"], asked["port"]) == given["port"]
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert re.fullmatch(rf"opalite(-server)?:{re.escape(version[1])}", container["image"])
    rights = {**spec.get("securityContext", {}), **container["securityContext"]}
    assert rights["runAsNonRoot"] is rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert f"USER {rights['runAsUser']}:" in RECIPE.read_text()
    volumes = {v["name"] for v in spec["volumes"]}
    assert {m["name"] for m in container["volumeMounts"]} <= volumes
    assert "/tmp" in {m["mountPath"] for m in container["volumeMounts"]}


def test_the_deployment_stops_in_time_and_the_service_finds_it() -> None:
    deployment = loaded(DEPLOY / "kubernetes/base/deployment.yaml")
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert read(container["args"])["grace"] + pause < template["spec"]["terminationGracePeriodSeconds"]
    service = loaded(DEPLOY / "kubernetes/base/service.yaml")
    labels = template["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert {p["targetPort"] for p in service["spec"]["ports"]} <= {p["name"] for p in container["ports"]}
    notes = template["metadata"]["annotations"]
    assert int(notes["prometheus.io/port"]) == read(container["args"])["metrics_port"]
    patch = loaded(DEPLOY / "kubernetes/with-key/key.yaml")
    assert patch["metadata"]["name"] == deployment["metadata"]["name"]
    assert patch["spec"]["template"]["spec"]["containers"][0]["name"] == container["name"]


def test_kserves_example_asks_for_the_runtime_that_is_there() -> None:
    runtime, service = (loaded(DEPLOY / f"kserve/{n}.yaml") for n in ("serving-runtime", "inference-service"))
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] in {f["name"] for f in runtime["spec"]["supportedModelFormats"]}
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]


def test_the_page_names_files_and_ports_that_are_there() -> None:
    page = (ROOT / "docs/deploying.md").read_text()
    for name in re.findall(r"\bdeploy/[\w./-]*\w|\btests/[\w/]+\.py", page):
        assert (ROOT / name).exists(), name
    assert HttpSettings().port == 8000
    assert GrpcSettings().port == 8001
    assert "-p 127.0.0.1:8000:8000 -p 127.0.0.1:8001:8001" in page
