"""`opalite kernel` and the option --kernels."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import onnx.parser
import pytest
from click.testing import CliRunner

from opalite import knobs
from opalite.cli import main, watch_file
from opalite.errors import InputError

from ..helpers.registered import registers, write_roll

__all__ = ["registers"]
pytestmark = pytest.mark.usefixtures("registers")
TEXT = (
    '<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]> g (float[2, 5] x) => (float[2, 5] y) '
    "{ a = Neg(x) y = com.example.Roll<axis = 1, shift = 2>(a) }"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roll.onnx").write_bytes(onnx.parser.parse_model(TEXT).SerializeToString())


def opalite(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(args), env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result.output


def test_from_a_skeleton_to_a_run(tmp_path: Path) -> None:
    said = opalite("kernel", "new", "roll", "--for", "roll.onnx", "--node", "Roll")
    assert "wrote    roll.py" in said
    assert "then     opalite kernel test roll.py" in said
    said = opalite("kernel", "test", "roll.py")
    assert "RollKernel Roll() of f32[2,5]: 6 passed" in said or "refused" in said
    checks = json.loads(opalite("kernel", "test", "roll.py", "--json"))["checks"]
    assert {c["kernel"] for c in checks} == {"Roll", "RollKernel"}
    said = opalite("kernel", "bench", "roll.py")
    assert "* RollKernel" in said
    assert "no other kernel computes it; NumPy's reference takes" in said
    (case,) = json.loads(opalite("kernel", "bench", "roll.py", "--tune", "--json"))["cases"]
    assert case["rivals"][0]["seconds"] > 0
    assert "RollKernel" in opalite("inspect", "roll.onnx", "--kernels", "roll.py")
    assert knobs.get("OPALITE_KERNELS") == (), "the option holds for its command"


def test_a_wrong_kernel_ends_with_1(tmp_path: Path) -> None:
    write_roll(tmp_path, cl=("LOAD(x,", "2 * LOAD(x,"))
    assert "  FAILED, as given and 1 more: " in opalite("kernel", "test", "roll_of_test.py", code=1)
    assert "RollFlat: WRONG, " in opalite("kernel", "bench", "roll_of_test.py", code=1)


def test_a_kernel_that_refuses_everything_was_not_tested(tmp_path: Path) -> None:
    refuse = 'def refuse(self, p):\n        return "never"\n\n    def launch'
    write_roll(tmp_path, py=("def launch", refuse))
    assert "RollFlat refuses all of its cases (never)" in opalite("kernel", "test", "roll_of_test.py", code=1)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert "there is no file 'gone.py'" in opalite("run", "roll.onnx", "--kernels", "gone.py", code=1)
    assert "there is no file 'gone.py'" in opalite("kernel", "test", "gone.py", code=1)
    assert "there is no file 'gone.py' to watch" in opalite("kernel", "bench", "gone.py", "--watch", code=1)
    (tmp_path / "empty.py").write_text("")
    assert "empty.py has no list CASES" in opalite("kernel", "test", "empty.py", code=1)


def test_a_watch_runs_at_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_roll(tmp_path)
    ran: list[list[str]] = []
    monkeypatch.setattr(watch_file, "_run", lambda words: ran.append(list(words)))
    waits = iter([None, path.with_suffix(".cl"), None, path, tmp_path / "notes.txt"])

    def wait(_: float) -> None:
        changed = next(waits, ...)
        if changed is ...:
            raise KeyboardInterrupt
        if isinstance(changed, Path):
            changed.write_text("// changed" * (2 + len(ran)))

    with pytest.raises(SystemExit) as ended:
        watch_file.watch_file(str(path), ["test", str(path)], wait)
    assert ended.value.code == 130
    assert ran == [["test", str(path)]] * 3
    with pytest.raises(InputError, match="to watch"):
        watch_file.watch_file("gone.py", [])


def test_a_watch_tells_of_a_kernel_that_takes_its_process_down(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Child:
        def __init__(self, words: list[str]) -> None:
            assert words == [sys.executable, "-m", "opalite", "kernel", "test", "a.py"]

        def wait(self) -> int:
            return -11

    monkeypatch.setattr(watch_file.subprocess, "Popen", Child)
    watch_file._run(["test", "a.py"])
    assert "by signal 11: it reads or writes outside its tensors" in capfd.readouterr().out


def test_every_command_that_takes_a_model_takes_kernels() -> None:
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    takes = {name: {p.name for p in c.params} for name, c in commands.items() if c is not None}
    lacking = {name for name, params in takes.items() if params & {"model", "models"} and "kernels" not in params}
    assert not lacking
    assert "serve" in takes
