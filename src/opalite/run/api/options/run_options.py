"""RunOptions: what one run is told."""

from __future__ import annotations

import logging
from typing import Any

from ....errors import InputTypeError, TerminatedError, UnsupportedApiError
from ..diagnostics.log_severity import SessionLog, warn_once
from .option_descriptor import ConfigEntries, Option

_NO_EFFECT = {"training_mode": "models are run, not trained"}


class RunOptions:
    """Options of one run, as `session.run(names, feeds, run_options)` takes them. May serve several runs at once."""

    __slots__ = ("_config", "_values")

    log_severity_level = Option(-1, "Severity from which on the run is told of; -1 takes the session's.")
    log_verbosity_level = Option(0, "Accepted; OPALITE_DEBUG sets the detail.")
    logid = Option("", "Put before what is told of the run.")
    terminate = Option(
        False, "Calls off runs that have these options: before they begin, between segments, at the end."
    )
    only_execute_path_to_fetches = Option(False, "Accepted; the results are the same.")
    training_mode = Option(False, "Accepted; models are run, not trained.")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config = ConfigEntries("RunOptions")

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry. None has an effect: they concern memory arenas and graphs of other providers."""
        self._config.add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry. OptionError (a RuntimeError) if there is none."""
        return self._config.get(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """UnsupportedApiError: LoRA adapters are not offered."""
        raise UnsupportedApiError("LoRA adapters are not offered: merge the adapter into the model's weights")

    def _log(self) -> SessionLog | None:
        """What this run tells, if it has a severity or a tag of its own."""
        if self.log_severity_level < 0 and not self.logid:
            return None
        return SessionLog(self.log_severity_level, self.logid)

    def __repr__(self) -> str:
        return f"RunOptions({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


def check_run_options(options: Any) -> RunOptions | None:
    """`options` if they are such; InputTypeError for anything else. Says once what has no effect."""
    if options is None:
        return None
    if not isinstance(options, RunOptions):
        raise InputTypeError(f"run_options are an opalite.RunOptions, got {type(options).__name__}")
    for name, why in _NO_EFFECT.items():
        if options._values.get(name):
            warn_once(f"RunOptions.{name}", f"RunOptions.{name} has no effect: {why}")
    for key in options._config.entries:
        warn_once(f"run config {key}", f"the run config entry '{key}' has no effect: it is another provider's")
    return options


def check_not_terminated(options: RunOptions | None) -> None:
    """TerminatedError if the run is called off."""
    if options is not None and options.terminate:
        raise TerminatedError("Exiting due to terminate flag being set to true: set RunOptions.terminate to False")


def report_run(options: RunOptions | None, log: SessionLog, seconds: float) -> None:
    """Tell of a run that is done, if anyone wants to know."""
    own = options._log() if options is not None else None
    chosen = own or log
    if chosen.is_enabled(logging.DEBUG):
        chosen.log(logging.DEBUG, f"ran in {seconds * 1e3:.3f} ms")
