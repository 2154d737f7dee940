"""Machines that lack something: no linker, no home, nothing writable, full disks, limits of the process.

Each is imitated in a process of its own, in a private mount namespace or under another user, so that needs root; where
it cannot be had, the test is skipped with the reason. Every one must run the model of examples/super_resolution, or end
in one sentence.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from opalite.cl.device.enumerate_devices import list_all
from opalite.ir.device.device_family import FRAGILE_COMPILER
from opalite.pocl import process_limits as limits
from opalite.pocl.provide_linker import system_linker

MODEL = Path(__file__).parents[3] / "examples" / "super_resolution" / "super_resolution_x2.onnx"
NOWHERE = "/proc/no home"  # where nobody can make one
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="imitated with Linux's namespaces and limits")

PROGRAM = """
import sys
import numpy as np
import opalite
x = np.arange(1 * 3 * 12 * 16, dtype=np.float32).reshape(1, 3, 12, 16) / 576
session = opalite.InferenceSession(sys.argv[1], device="cpu")
y = session.run(None, {session.get_inputs()[0].name: x})[0]
print("RESULT", y.shape, float(y.mean()))
"""

# Programs in whose place nothing is found, and the folder of the compiler's files.
HIDE = """
for f in $(readlink -f /usr/bin/ld /usr/bin/ld.bfd /usr/bin/ld.gold /usr/bin/ld.lld /usr/bin/gcc /usr/bin/clang); do
    if [ -e "$f" ]; then mount --bind {empty}/file "$f"; fi
done
for d in /usr/lib/gcc /usr/lib64/gcc; do if [ -d $d ]; then mount --bind {empty}/folder $d; fi; done
"""


@cache
def result() -> str:
    """What the model gives here, and so elsewhere."""
    done = run([sys.executable, "-c", PROGRAM, str(MODEL)])
    assert done.returncode == 0, done.stderr
    return only_result(done)


def only_result(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert len(lines) == 1, (done.returncode, done.stdout, done.stderr)
    return lines[0]


def run(command: list[str], **changes: str | None) -> subprocess.CompletedProcess[str]:
    """`command` with this process's packages, its environment less the settings of caches, and `changes`."""
    own = ("POCL_", "OPALITE_", "XDG_", "COMPILER_PATH", "PYOPENCL_NO_CACHE", "TMPDIR")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    environment |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OPENBLAS_NUM_THREADS": "1"}
    environment |= {k: v for k, v in changes.items() if v is not None}
    for name in [k for k, v in changes.items() if v is None]:
        environment.pop(name, None)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def namespace(script: str, *command: str) -> list[str]:
    """`command` in a private mount namespace after the lines of `script`. Skips where there can be none."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare for a private mount namespace")
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip("this container may not make mount namespaces")
    return ["unshare", "-m", "bash", "-c", f'set -e\n{script}\nexec "$@"', "bash", *command]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    (tmp_path / "empty" / "file").write_text("")
    return tmp_path / "empty"


def sentences(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Lines of stderr, less those of tracebacks."""
    return [line for line in done.stderr.splitlines() if line and not line.startswith((" ", "Traceback"))]


# A linker


def test_without_a_linker_the_model_runs(empty: Path, tmp_path: Path) -> None:
    command = namespace(HIDE.format(empty=empty), sys.executable, "-c", PROGRAM, str(MODEL))
    done = run(command, OPALITE_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert only_result(done) == result()
    assert not sentences(done)


def test_without_a_linker_and_a_path_the_doctor_is_content(empty: Path, tmp_path: Path) -> None:
    script = f"{HIDE.format(empty=empty)}\nexport PATH={empty}/folder"
    done = run(namespace(script, sys.executable, "-m", "opalite", "doctor"), OPALITE_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "compiles and computes" in done.stdout
    if find_spec("pocl_binary_distribution") is not None:
        assert "own linker" in done.stdout


def test_binutils_without_a_compilers_files_are_not_enough(empty: Path, tmp_path: Path) -> None:
    script = f"for d in /usr/lib/gcc /usr/lib64/gcc; do [ -d $d ] && mount --bind {empty}/folder $d || true; done"
    done = run(namespace(script, sys.executable, "-c", PROGRAM, str(MODEL)), OPALITE_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert only_result(done) == result()


def test_no_linker_and_none_of_our_own_is_a_sentence(empty: Path, tmp_path: Path) -> None:
    command = namespace(HIDE.format(empty=empty), sys.executable, "-c", PROGRAM, str(MODEL))
    done = run(command, OPALITE_CACHE_DIR=str(tmp_path / "cache"), OPALITE_LINKER="system")
    assert done.returncode == 1, done.stderr
    assert "no `ld` works here" in sentences(done)[-1]
    assert "apt install gcc" in sentences(done)[-1]


# Folders


@cache
def stranger() -> str | None:
    """A Python with this one's packages that a user without an account can start; None if there is none."""
    code = "import numpy, pyopencl"
    for python in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        if run([*_as_stranger(), python, "-c", code], HOME=NOWHERE, PYOPENCL_NO_CACHE="1").returncode == 0:
            return python
    return None


def _as_stranger() -> list[str]:
    return ["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups"]


def strange(*command: str) -> list[str]:
    """`command` of a user who has no account, no home and nothing of the tree."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become another user")
    python = stranger()
    if python is None:
        pytest.skip("another user can read neither this Python nor its packages")
    return [*_as_stranger(), python, *command]


@pytest.mark.parametrize("home", [NOWHERE, None])
def test_a_user_without_home_or_account_is_told_in_one_line(home: str | None) -> None:
    done = run(strange("-c", PROGRAM, str(MODEL)), HOME=home)
    assert done.returncode == 0, done.stderr
    assert only_result(done) == result()
    (line,) = sentences(done)
    assert "everything is kept in memory only" in line
    assert "OPALITE_CACHE_DIR" in line


def test_a_user_without_home_who_wants_no_cache_is_told_nothing() -> None:
    done = run(strange("-c", PROGRAM, str(MODEL)), HOME=NOWHERE, OPALITE_CACHE="0")
    assert only_result(done) == result()
    assert not sentences(done)


def test_a_user_without_home_may_have_a_cache(tmp_path: Path) -> None:
    cache = Path("/tmp") / f"opalite-test-{os.getpid()}"
    try:
        for _ in range(2):
            done = run(strange("-c", PROGRAM, str(MODEL)), HOME=NOWHERE, OPALITE_CACHE_DIR=str(cache))
            assert only_result(done) == result()
            assert not sentences(done)
        assert list(cache.glob("programs/*/*.bin"))
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def mounted(folder: Path, options: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return f"mount -t tmpfs -o {options} none {folder}"


@pytest.mark.parametrize(
    "options, then, told",
    [
        ("ro", "", "Read-only file system"),
        ("size=1m", "dd if=/dev/zero of={cache}/filled bs=1k 2> /dev/null || true", "No space left on device"),
        ("size=64m,noexec", "", ""),
    ],
    ids=["read-only", "full", "noexec"],
)
def test_a_cache_folder_that_serves_little(tmp_path: Path, options: str, then: str, told: str) -> None:
    cache = tmp_path / "cache"
    script = f"{mounted(cache, options)}\n{then.format(cache=cache)}"
    done = run(namespace(script, sys.executable, "-c", PROGRAM, str(MODEL)), OPALITE_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    assert only_result(done) == result()
    lines = sentences(done)
    assert len(lines) == (told != ""), lines
    assert told in "".join(lines)


COUNTS = """
from opalite.cache.hit_counters import process_counts
counts = [process_counts()[name] for name in ("programs", "plans")]
print("COUNTS", *(c.misses for c in counts), *(c.hits > 0 for c in counts))
"""


def test_a_warm_cache_that_can_only_be_read_is_used(tmp_path: Path) -> None:
    """As in an image of a container that was run while it was built."""
    cache = tmp_path / "cache"
    first = run([sys.executable, "-c", f"{PROGRAM}\nsession.settle()", str(MODEL)], OPALITE_CACHE_DIR=str(cache))
    assert only_result(first) == result()
    script = f"mount --bind {cache} {cache}\nmount -o remount,bind,ro {cache}"
    command = namespace(script, sys.executable, "-c", PROGRAM + COUNTS, str(MODEL))
    done = run(command, OPALITE_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    assert only_result(done) == result()
    assert "COUNTS 0 0 True True" in done.stdout
    (line,) = sentences(done)
    assert "what it holds is used, and nothing is added" in line


def test_on_a_tree_that_can_only_be_read_the_model_runs() -> None:
    """A user without account or home, where nothing but /tmp can be written."""
    command = strange("-c", PROGRAM, str(MODEL))
    script = (
        "mount --bind / /mnt\nmount -o remount,bind,ro /mnt\nmount -t tmpfs none /mnt/tmp\nmount -t proc none /mnt/proc"
    )
    if any(Path(p).is_relative_to("/tmp") for p in (sys.executable, str(MODEL), cl.__file__)):
        pytest.skip("what is needed lies below /tmp")
    chroot = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or pytest.skip("there is no chroot")
    done = run(namespace(script, chroot, "/mnt", *command), HOME=NOWHERE)
    assert done.returncode == 0, done.stderr
    assert only_result(done) == result()
    (line,) = sentences(done)
    assert "everything is kept in memory only" in line


def test_the_doctor_is_content_with_what_a_session_needs() -> None:
    done = run(strange("-m", "opalite", "doctor"), HOME=NOWHERE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each process builds its programs again" in " ".join(done.stdout.split())


@pytest.mark.parametrize("options, told", [("ro", "Read-only file system"), ("size=1m", "MiB are free")])
def test_nowhere_to_write_is_a_sentence(options: str, told: str) -> None:
    where = "/mnt"  # not below /tmp, which is mounted over
    for needed in (MODEL, Path(cl.__file__), Path(sys.executable)):
        if needed.is_relative_to("/tmp"):
            pytest.skip(f"{needed} lies below /tmp")
    places = (where, "/var/tmp", "/dev/shm", "/tmp")
    script = "\n".join([*(f"mount -t tmpfs -o {options} none {place}" for place in places), f"cd {where}"])
    command = namespace(script, sys.executable, "-c", PROGRAM, str(MODEL))
    done = run(command, OPALITE_CACHE_DIR=f"{where}/cache", HOME=where)
    assert done.returncode == 1, (done.returncode, done.stderr)
    said = "\n".join(done.stderr.splitlines()[-3:])
    assert "needs a folder where it can write" in said
    assert told in said


# Limits of the process


def limited(limits: str, *command: str) -> list[str]:
    return ["bash", "-c", f'ulimit {limits} && exec "$@"', "bash", *command]


def test_files_that_may_not_grow_are_a_sentence(tmp_path: Path) -> None:
    command = limited("-f 40", sys.executable, "-c", PROGRAM, str(MODEL))
    done = run(command, OPALITE_CACHE_DIR=str(tmp_path))
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert "at most 40 KiB (ulimit -f)" in sentences(done)[-1]


@pytest.mark.parametrize("linker", ["system", "own"])
@pytest.mark.parametrize("files", [6, 9, 10, 11, 12, 13])
def test_few_open_files_are_a_sentence_or_enough(tmp_path: Path, files: int, linker: str) -> None:
    """The system's `ld` needs more of them than what PoCL itself opens, which ends the process if it gets none."""
    if linker == "system" and system_linker() is None:
        pytest.skip("there is none")
    command = limited(f"-n {files}", sys.executable, "-c", PROGRAM, str(MODEL))
    done = run(command, OPALITE_CACHE_DIR=str(tmp_path), OPALITE_LINKER=linker)
    if done.returncode == 0:
        assert only_result(done) == result()
    else:
        assert done.returncode == 1, (done.returncode, done.stderr)
        assert f"left of {files} (ulimit -n)" in sentences(done)[-1]


@pytest.mark.parametrize("kib, doing", [(300_000, "loading OpenCL drivers"), (720_000, "compiling a program")])
def test_too_little_memory_is_a_sentence(tmp_path: Path, kib: int, doing: str) -> None:
    command = limited(f"-v {kib}", sys.executable, "-c", PROGRAM, str(MODEL))
    done = run(command, OPALITE_CACHE_DIR=str(tmp_path), OPALITE_BUILD_THREADS="1")
    if done.returncode == 0 and any(FRAGILE_COMPILER in found.info.quirks for found in list_all().devices):
        # Worker processes compile, each of which has as much address space.
        assert (doing, only_result(done)) == ("compiling a program", result())
        return
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert doing in sentences(done)[-1]
    assert "ulimit -v" in sentences(done)[-1]


def test_stacks_of_threads_stay_within_the_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL starts a thread a core and aborts the process if one has no room for its stack."""
    memory = 200 << 20
    sizes = {"RLIMIT_AS": memory + limits.START_BYTES + (450 << 20), "RLIMIT_STACK": 8 << 20}
    monkeypatch.setattr(limits, "_limit", sizes.get)
    monkeypatch.setattr(limits, "_address_space", lambda: memory)
    monkeypatch.setattr(limits, "task_limit", lambda: None)
    monkeypatch.setattr(limits, "core_limit", lambda: None)
    for cores, expected in ((64, 6), (7, 6), (6, None), (2, None)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert limits.thread_limit() == expected
    sizes["RLIMIT_AS"] = memory
    assert limits.thread_limit() == 1
    del sizes["RLIMIT_AS"]
    assert limits.thread_limit() is None


def test_few_tasks() -> None:
    """Threads of a user are counted together, so each count has a user of its own."""
    command = strange("-c", PROGRAM, str(MODEL))
    for tasks in (1, 2, 4, 6, 12):
        mine = [str(50_000 + tasks) if word == "65533" else word for word in command]
        done = run(["prlimit", f"--nproc={tasks}", *mine], HOME=NOWHERE, OPALITE_CACHE="0")
        if done.returncode == 0:
            assert only_result(done) == result()
        else:
            assert done.returncode == 1, (tasks, done.returncode, done.stderr)
            assert "more threads or processes (ulimit -u" in sentences(done)[-1]
    assert done.returncode == 0, done.stderr


def test_the_model_is_what_the_reference_says() -> None:
    """That all agree is worth nothing if all are wrong."""
    shape = result().split("(")[1].split(")")[0]
    assert tuple(map(int, shape.split(","))) == (1, 3, 24, 32)
    assert 0.3 < float(result().split()[-1]) < 0.7
    assert np.isfinite(float(result().split()[-1]))
