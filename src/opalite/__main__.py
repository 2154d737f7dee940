"""`python -m opalite`, and the command `opalite`."""

from __future__ import annotations

from .interrupts import STATUS, end, leave, was_interrupted, watch


def main() -> None:
    """Run the command line."""
    watch()
    try:
        try:
            from .cli import main as commands

            commands(prog_name="opalite")
        except (KeyboardInterrupt, Exception) as e:
            if was_interrupted(e):
                end()
            raise
    except SystemExit as e:
        if e.code == STATUS:
            leave()
        raise


if __name__ == "__main__":
    main()
