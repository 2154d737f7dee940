"""The suite's cache: a folder of one run, whose program binaries later runs on this machine find again.

The user's cache is never used. Plans, tuning, choices of precision and PoCL's own files begin empty in each run;
binaries are kept in one folder (OPALITE_TEST_CACHE, by default `opalite-tests` beside the user's cache; 0 for none),
where the store's keys tell drivers, devices and sources apart. It is safe to delete at any time.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import platformdirs

CHOICE = "OPALITE_TEST_CACHE"
_PREFIX = "opalite-tests-"


def use_own_cache() -> None:
    """Point OPALITE_CACHE_DIR to a new folder, which goes when this process ends.

    Worker processes have folders within it, so that what the tests of one tune changes no plan of another's.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ["OPALITE_CACHE_DIR"] = str(folder_within(os.environ["PYTEST_XDIST_WORKER"]))
        return
    _remove_left()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    atexit.register(_remove, folder, os.getpid())
    kept = kept_folder()
    if kept is not None:
        with suppress(OSError):  # read-only, or no links (Windows without the right to them): all is built anew
            (kept / "programs").mkdir(parents=True, exist_ok=True)
            (folder / "programs").symlink_to(kept / "programs", target_is_directory=True)
    os.environ["OPALITE_CACHE_DIR"] = str(folder)


def folder_within(name: str) -> Path:
    """A folder `name` of the cache, made where it is missing, that shares the cache's binaries and nothing else."""
    shared = Path(os.environ["OPALITE_CACHE_DIR"])
    folder = shared / name
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("programs", "pocl"):
        with suppress(OSError):
            (shared / part).mkdir(parents=True, exist_ok=True)
            (folder / part).symlink_to(shared / part, target_is_directory=True)
    return folder


def kept_folder() -> Path | None:
    """Where binaries are kept between runs; None if they are not."""
    chosen = os.environ.get(CHOICE, "")
    if chosen == "0":
        return None
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("opalite-tests", appauthor=False))


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked process ends earlier
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left() -> None:
    """Remove the folders of runs that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if os.name == "posix" and pid.isdigit() and not _runs(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
