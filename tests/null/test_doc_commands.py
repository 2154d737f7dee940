"""The commands that the documents tell their readers to type could be run: a wrong option or file is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..docs.__main__ import variant_of
from ..docs.check import RefusedError, check, is_setting
from ..docs.commands import PAGES, ROOT, Command, all_commands, collect
from ..docs.scene import make_scene

COMMANDS = all_commands()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scene(tmp_path_factory.mktemp("docs"))


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_could_be_run(command: Command, scene: Path) -> None:
    try:
        check(command, scene)
    except RefusedError as e:
        pytest.fail(f"{command}\n{e}")


@pytest.mark.parametrize(
    "text, reason",
    [
        ("opalite run model.onnx --presicion fp16", "No such option"),
        ("opalite runs model.onnx", "No such command"),
        ("opalite profile model.onnx --trace", "requires an argument"),
        ("opalite run model.onnx --seed many", "not a valid integer"),
        ("python -m benchmarks.comparison model.onnx", "no module"),
        ("python -m benchmarks.compare model.onnx --engine-list opalite", "unrecognized arguments"),
        ("python -m tests.fuzz --mode gpu", "invalid choice"),
        ("python -m pytest tests/device/test_nothing.py", "there is no tests/device/test_nothing.py"),
        ("python nothing.py", "there is no nothing.py"),
        ("make everything", "the Makefile has demo"),
        ("pip install -e '.[everything]'", "the extras llm, serve, text, tflite, lens, ray, video, test"),
        ("OPALITE_FLASH=4 opalite devices", "OPALITE_FLASH is no setting"),
    ],
)
def test_a_wrong_command_is_found(text: str, reason: str, scene: Path) -> None:
    with pytest.raises(RefusedError, match=reason):
        check(Command("README.md", 1, text, whole=True), scene)


def test_the_commands_do_not_run_themselves() -> None:
    assert all("--help" in run for run, _ in map(variant_of, COMMANDS) if "tests.docs" in run)


def test_of_a_command_cut_short_the_options_are_looked_at(scene: Path) -> None:
    check(Command("README.md", 1, "opalite inspect --node", whole=False), scene)
    with pytest.raises(RefusedError, match="--nodes"):
        check(Command("README.md", 1, "opalite inspect --nodes", whole=False), scene)


def test_commands_are_found_where_pages_have_them() -> None:
    found = {str(page.relative_to(ROOT)): list(collect(page)) for page in PAGES}
    assert len([c for c in found["README.md"] if c.whole]) >= 8, "fenced blocks"
    assert len([c for c in found["docs/portability.md"] if c.whole]) >= 5, "indented blocks"
    assert any(c.environment for c in found["docs/caches.md"]), "code in sentences, with settings in front"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_settings_that_a_page_names_are_there(page: Path) -> None:
    named = set(re.findall(r"\bOPALITE_[A-Z_]*[A-Z]", page.read_text(encoding="utf-8")))
    assert not [name for name in named if not is_setting(name)]


def test_settings_are_those_of_the_package_and_of_tests() -> None:
    assert is_setting("OPALITE_FLUSH")
    assert is_setting("OPALITE_TEST_CACHE")
    assert not is_setting("OPALITE_FLASH")
