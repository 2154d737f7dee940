"""RunOptions: the options of one run."""

from __future__ import annotations

import logging
from typing import Any

from ....errors import InputTypeError, TerminatedError, UnsupportedApiError
from ..diagnostics.ort_logging import SessionLog, warn_once
from .option_descriptor import Option, Options


class RunOptions(Options):
    """Options of a run: `session.run(names, feeds, run_options)`. Concurrent runs may share them."""

    __slots__ = ()

    log_severity_level = Option(-1, "The least severity of messages about the run; -1 takes the session's.")
    log_verbosity_level = Option(0, "No effect; OPALITE_DEBUG sets the detail.")
    logid = Option("", "The beginning of messages about the run.")
    terminate = Option(False, "True ends runs with these options: before the run, between segments, or at its end.")
    only_execute_path_to_fetches = Option(False, "No effect; the results are the same.")
    training_mode = Option(False, "No effect.", "models are run, not trained")

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Store an entry. No entry has an effect: they concern memory arenas and graphs of other providers."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry. Raises OptionError (a RuntimeError) if there is none."""
        return self._entry(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Raise UnsupportedApiError: LoRA adapters are not supported."""
        raise UnsupportedApiError("LoRA adapters are not offered: merge the adapter into the model's weights")

    def _log(self) -> SessionLog | None:
        """The log of the run if it has its own severity or logid, else None."""
        if self.log_severity_level < 0 and not self.logid:
            return None
        return SessionLog(self.log_severity_level, self.logid)


def check_run_options(options: Any) -> RunOptions | None:
    """Check the type of `options`, and warn once of options without effect. Raises InputTypeError for other types."""
    if options is None:
        return None
    if not isinstance(options, RunOptions):
        raise InputTypeError(f"run_options are an opalite.RunOptions, got {type(options).__name__}")
    warn_no_effect(options)
    for key in options._config:
        warn_once(f"run config {key}", f"the run config entry '{key}' has no effect: it is another provider's")
    return options


def warn_no_effect(options: Any, log: SessionLog | None = None) -> None:
    """Warn once of each changed option without effect, of SessionOptions or RunOptions."""
    owner = type(options)
    for name, value in options._values.items():
        option: Option[Any] = getattr(owner, name)
        if option.no_effect and value != option.default:
            text = f"{owner.__name__}.{name}"
            warn_once(text, f"{text} has no effect: {option.no_effect}", log)


def check_not_terminated(options: RunOptions | None) -> None:
    """Raise TerminatedError if `terminate` is set."""
    if options is not None and options.terminate:
        raise TerminatedError("Exiting due to terminate flag being set to true: set RunOptions.terminate to False")


def report_run(options: RunOptions | None, log: SessionLog, seconds: float) -> None:
    """Log the duration of a finished run at severity 0."""
    own = options._log() if options is not None else None
    chosen = own or log
    if chosen.is_enabled(logging.DEBUG):
        chosen.log(logging.DEBUG, f"ran in {seconds * 1e3:.3f} ms")
