"""`python -m opalite`, and the command `opalite`."""

from __future__ import annotations

from .interrupts import end, watch


def main() -> None:
    """Run the command line."""
    watch()
    try:
        from .cli import main as commands

        commands(prog_name="opalite")
    except KeyboardInterrupt:
        end()


if __name__ == "__main__":
    main()
