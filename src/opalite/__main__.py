"""`python -m opalite` is the `opalite` command."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="opalite")
