"""The portability suite: the device tests and the shared models on every OpenCL implementation that can be had.

    python -m tests.portability [--only NAME]... [--quick] [--minutes N]

`implementations.py` says what there is and where it comes from, `install.py` fetches it into a folder of its own,
`run.py` runs tests in processes that see this one implementation, `matrix.py` writes docs/portability.md.
"""
