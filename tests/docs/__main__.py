"""Run the commands of the documents, one after the other, and tell how each ended.

python -m tests.docs [--only PART] [--json FILE]

They run in a copy of the checkout that has the files they name (scene.py). What would take hours, needs a GPU or a
package that is not here is run in a smaller form, or is asked for its help; the list says which and why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from .check import RefusedError, check
from .commands import Command, all_commands
from .scene import fill_in, make_scene, store_outputs

FOLLOWED = {
    "docs/add-a-kernel.md": "tests/device/kernels/test_add_a_kernel.py follows the page",
    "docs/add-an-operator.md": "tests/device/ops/test_add_an_operator.py follows the page",
}
_SMALLER = (
    (r"^make test$", "make -n check suite", "takes minutes, CI runs it"),
    (r"^make (test-ray|check|portability)$", r"make -n \1", "takes minutes to hours, CI runs it"),
    (r"^make constraints$", "make -n constraints", "fetches the newest of everything"),
    (r"^(python -m tests\.fuzz\.mutants) --plain.*", r"\1 --help", "looks for each fault in thousands of graphs"),
    (r"^python -m tests\.docs$", "python -m tests.docs --help", "it would run itself"),
    (r"^(opalite serve)\b.*", r"\1 --help", "tests/device/serve/http/test_serving_document.py runs it"),
    (r"^pip install (.+)$", r"pip install --dry-run --no-deps \1", "changes nothing here"),
    (r"^(python -m tests\.portability).*", r"\1 --help", "fetches hundreds of megabytes, runs for hours"),
    (r"^(python -m benchmarks\.http_load).*", r"\1 --help", "needs a server that runs"),
    (r"^(python -m benchmarks\.serving .*)$", r"\1 --seconds 2 --rounds 1 --connections 4", "shorter"),
    (r"^(python -m benchmarks\.gpu_kernels).*", r"\1 --help", "needs an NVIDIA GPU"),
    (r"^(python -m benchmarks\.gpu_choice).*", r"\1 --help", "needs what gpu_kernels wrote"),
    (r"^.*(python -m benchmarks\.gpu_decoding).*", r"\1 --help", "needs a GPU"),
    (r"^(python -m benchmarks\.long_runs).*", r"\1 --help", "needs PyTorch and an NVIDIA GPU"),
    (r"^(python -m benchmarks\.latency_during_new_sizes).*", r"\1 --help", "needs a model with open sizes"),
    (r"^(python -m benchmarks\.first_run).*", r"\1 --help", "needs a folder of models with their inputs"),
    (r"^(python -m benchmarks\.long_caches).*", r"\1 --lengths 64", "shorter"),
    (r"--seconds 600", "--seconds 5", "shorter"),
    (r"--count \d+", "--count 6", "fewer"),
    (r"--jobs 16", "--jobs 2", "fewer"),
    (r"OPALITE_TEST_KILLS=100", "OPALITE_TEST_KILLS=2", "fewer"),
    (r"--device gpu", "--device cpu", "for machines without a GPU"),
    (r"(--case \S+) --shrink", r"\1", "the case has no fault to shrink"),
    (r"(benchmarks\.agreement .*)", r"\1 --seeded squeezenet1_1", "one built model"),
    (r"(benchmarks\.startup \S+)", r"\1 --repeats 1", "shorter"),
    (r"benchmarks\.compare (?!--list)(.*)", r"benchmarks.compare \1 --rounds 2 --slice 0.1", "shorter"),
    (r"(benchmarks\.tuned_speedup) .*", r"\1 squeezenet1_1 --level fast", "one model"),
    (r"(benchmarks\.programs --(against|keep) \S+)$", r"\1 squeezenet1_1 --precisions fp32", "one model"),
    (r"(benchmarks\.programs --(against|keep) \S+) +$", r"\1 squeezenet1_1 --precisions fp32", "one model"),
)
_WANTED = (
    (r"openvino", "openvino", r",openvino\b", ""),
    (r"--plot", "matplotlib", r" --plot \S+", ""),
    (r"benchmarks\.gpu\b", "torch", r"^.*$", ""),
    (r"train\.py", "torch", r"^.*$", ""),
    (r"opalite generate|write\.py", "tokenizers", r"^.*$", ""),
)
"""Commands that name this want that package; without it, what is put in the place of what."""


def variant_of(command: Command) -> tuple[str, str]:
    """The command line to run instead, and the reason; "" for nothing to run."""
    if command.page in FOLLOWED:
        return "", FOLLOWED[command.page]
    text, reasons = fill_in(command).text.strip(), []
    for named, package, pattern, word in _WANTED:
        if re.search(named, text) and find_spec(package) is None:
            text = re.sub(pattern, word, text)
            reasons.append(f"{package} is not installed")
    for pattern, words, reason in _SMALLER if text else ():
        changed = re.sub(pattern, words, text)
        if changed != text:
            text = changed
            reasons.append(reason)
    return text, ", ".join(reasons)


def run(command: Command, text: str, work: Path, seconds: float) -> tuple[int, str]:
    """Exit status and output of `text` in the folder that the command's page speaks of."""
    page = work / Path(command.page).parent
    folder = page if command.page.startswith("examples/") else work
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": f"{work / 'src'}{os.pathsep}{work}"}
    environment["OPALITE_CACHE_DIR"] = str(work.parent / "cache")
    with subprocess.Popen(
        text, shell=True, cwd=folder, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as e:
            os.killpg(process.pid, signal.SIGKILL)  # the shell's children too
            return 124, str(e)
    return process.returncode, output


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.docs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of a page's name or of a command")
    parser.add_argument("--seconds", type=float, default=900, help="how long a command may take")
    parser.add_argument("--json", type=Path, help="write the list to a file")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    told: dict[str, str] = {}
    with TemporaryDirectory(prefix="opalite-docs-") as name:
        work = make_scene(Path(name), sources=True)
        store_outputs(work)
        for command in all_commands():
            if options.only not in str(command):
                continue
            text, reason = variant_of(command)
            started = time.perf_counter()
            output = ""
            try:
                check(command, work)
                if not text or (not command.whole and not _is_complete(command, work)):
                    outcome = "checked"
                    reason = reason or "cut short: its options are there"
                elif text in told:
                    outcome, reason = told[text], "the same was run above"
                else:
                    status, output = run(command, text, work, options.seconds)
                    outcome = told[text] = "ok" if status == 0 else f"ended with {status}"
            except RefusedError as e:
                outcome, output = "wrong", str(e)
            seconds = time.perf_counter() - started
            rows.append({"command": str(command), "run": text, "outcome": outcome, "why": reason, "seconds": seconds})
            print(f"{outcome:8} {seconds:6.1f} s  {command}" + (f"   [{text or '-'}: {reason}]" if reason else ""))
            if outcome not in ("ok", "checked"):
                print(output[-2000:])
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    bad = [row for row in rows if row["outcome"] not in ("ok", "checked")]
    print(f"{len(rows)} commands, {len(bad)} with something to mend")
    return 1 if bad else 0


def _is_complete(command: Command, work: Path) -> bool:
    """Whether a mention in a sentence can be run as it stands."""
    try:
        check(replace(command, whole=True), work)
    except RefusedError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
