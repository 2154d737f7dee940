"""An engine for tests of the comparison: twice its input after a pause, or whatever its options ask for."""

import os
import time


class ToyEngine:
    def __init__(self, options):
        self.version, self.device = "1", f"pid {os.getpid()}"
        self.pause = float(options.extra.get("pause", 0))
        self.offset = float(options.extra.get("offset", 0))
        self.crash = options.extra.get("crash") == "yes"

    def run(self, feeds):
        if self.crash:
            print("last words", flush=True)
            os._exit(3)
        time.sleep(self.pause)
        print("engines may print", flush=True)
        return [feeds["x"] * 2 + self.offset]


def make_engine(options):
    if options.extra.get("refuse") == "yes":
        raise RuntimeError("cannot do that")
    return ToyEngine(options)


class ToyCrew(ToyEngine):
    """As many at once as there are workers."""

    def __init__(self, options):
        super().__init__(options)
        self.workers = options.workers

    def work(self, feeds, seconds):
        end, times = time.perf_counter() + seconds, []
        while time.perf_counter() < end:
            self.run(feeds)
            times += [self.pause] * self.workers
        return times


def make_worker_pool(options):
    if options.mode == "refused":
        raise RuntimeError("no such mode")
    return ToyCrew(options)
