"""Malformed requests: a small part of what `python -m tests.fuzz.requests` sends."""

from __future__ import annotations

import pytest

from .requests import DAMAGES, damaged, judge, run_here


def test_the_server_answers_after_them() -> None:
    statuses, wrong = run_here(range(150))
    assert not wrong
    assert statuses["400"] > 30


def test_seeds_draw_every_damage() -> None:
    assert {damaged(seed)[0] for seed in range(400)} == {d.__name__.strip("_") for d in DAMAGES}
    assert damaged(7)[1].encode() == damaged(7)[1].encode()


@pytest.mark.parametrize(
    "answer, words",
    [
        (b"", ""),
        (b'HTTP/1.1 400 Bad Request\r\ncontent-length: 12\r\n\r\n{"error":""}', ""),
        (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno", "without an error"),
        (b"HTTP/1.1 500 Internal\r\n\r\n", "status 500"),
        (b"nonsense", "no HTTP"),
    ],
)
def test_answers_are_judged(answer: bytes, words: str) -> None:
    assert words in judge(answer, False)
    assert bool(judge(answer, False)) == bool(words)
