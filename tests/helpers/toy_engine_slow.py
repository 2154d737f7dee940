"""The toy engine under a second name, so that it can be compared with itself."""

from tests.helpers.toy_engine import make_engine

__all__ = ["make_engine"]
