"""The suite's own cache: never the user's, empty in each run but for binaries, gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opalite.cache.cache_folder import cache_folder
from opalite.tune.database_files import database_path

from .. import build_cache

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os
from tests.build_cache import use_own_cache
use_own_cache()
print(os.environ["OPALITE_CACHE_DIR"])
folder = os.path.join(os.environ["OPALITE_CACHE_DIR"], "programs")
print(os.path.realpath(folder) if os.path.isdir(folder) else "none")
os.makedirs(os.path.join(folder, "ab"), exist_ok=True)
open(os.path.join(folder, "ab", "x.bin"), "w").close()
"""


def start(tmp_path: Path, **environment: str) -> tuple[Path, str]:
    """(the run's folder, where it keeps binaries) of a process that has ended."""
    own = {k: v for k, v in os.environ.items() if k not in ("PYTEST_XDIST_WORKER", "OPALITE_CACHE_DIR")}
    own |= {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")} | environment
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=True)
    folder, programs = done.stdout.split()
    return Path(folder), programs


def test_this_run_has_a_cache_of_its_own() -> None:
    """Within the run's, where a worker has a folder too."""
    assert any(path.name.startswith("opalite-tests-") for path in cache_folder().parents)


@pytest.mark.skipif(os.name != "posix", reason="folders are linked")
def test_modules_share_binaries_and_no_tuning() -> None:
    """Else what the tests of one measure decides on the kernels of another's, in the order that a worker meets them."""
    own = cache_folder()
    assert own.name == __name__
    assert database_path() == own / "tuning.sqlite"
    (own / "tuning.sqlite").touch()
    other = build_cache.folder_within("test")  # as for a module whose tests run next
    assert not (other / "tuning.sqlite").exists()
    assert (other / "programs").resolve() == (own / "programs").resolve()
    (own / "tuning.sqlite").unlink()


@pytest.mark.skipif(os.name != "posix", reason="folders are linked")
def test_binaries_outlive_a_run(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    one, programs = start(tmp_path, OPALITE_TEST_CACHE=str(kept))
    assert Path(programs) == kept / "programs"
    assert not one.exists()
    assert (kept / "programs" / "ab" / "x.bin").is_file()
    other, programs = start(tmp_path, OPALITE_TEST_CACHE=str(kept))
    assert (other != one, Path(programs)) == (True, kept / "programs")


@pytest.mark.skipif(os.name != "posix", reason="folders are linked")
def test_nothing_is_kept_on_request_or_in_the_users_cache(tmp_path: Path) -> None:
    folder, programs = start(tmp_path, OPALITE_TEST_CACHE="0", OPALITE_CACHE_DIR=str(tmp_path / "user"))
    assert (folder.exists(), programs) == (False, "none")
    assert not list(tmp_path.rglob("*.bin"))


@pytest.mark.skipif(os.name != "posix", reason="process ids are asked for")
def test_folders_of_killed_runs_go(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, used = (tmp_path / f"{build_cache._PREFIX}{pid}-abc" for pid in (dead.pid, os.getpid()))
    left.mkdir()
    used.mkdir()
    start(tmp_path, OPALITE_TEST_CACHE="0")
    assert (left.exists(), used.exists()) == (False, True)
