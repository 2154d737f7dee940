"""Regular expressions of models: RE2's syntax, linear time, and errors without the package."""

from __future__ import annotations

import sys

import pytest

from opalite.errors import ExtraError, ModelError
from opalite.importer.host.regex import Pattern


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|aa)*b", "a*a*a*a*a*a*b", "(.*)(.*)(.*)(.*)x"])
def test_what_would_go_back_for_ever_does_not(expression: str) -> None:
    """A backtracking matcher would exceed the test's time by far; so does any quadratic one on a million characters."""
    assert not Pattern(expression, "node").matches("a" * 1_000_000)


@pytest.mark.parametrize(
    ("expression", "matched", "other"),
    [
        (r"\pL+", "größe", "a1"),
        (r"a$", "a", "a\n"),
        ("a.b", "a-b", "a\nb"),
        (r"(?i)[[:alpha:]]+\z", "AbC", "ä"),
        ("aa|aab", "aab", "aabb"),
    ],
)
def test_the_syntax_is_that_of_re2(expression: str, matched: str, other: str) -> None:
    assert Pattern(expression, "node").matches(matched)
    assert not Pattern(expression, "node").matches(other)


@pytest.mark.parametrize("expression", ["(", "a{2,1}", "aab?+", r"(?<=a)b", r"(a)\1", "x{2001}"])
def test_what_re2_does_not_take_is_refused(expression: str) -> None:
    with pytest.raises(ModelError, match="node 'y' has the pattern"):
        Pattern(expression, "node 'y'")


def test_the_longest_match_counts_where_asked() -> None:
    assert list(Pattern("a|ab", "node", longest=True).spans("xaba")) == [(1, 3), (3, 4)]
    assert list(Pattern("a|ab", "node").spans("xaba")) == [(1, 2), (3, 4)]
    assert list(Pattern("x*", "node").spans("abc")) == []


@pytest.mark.parametrize(
    "expression", ["[a-z]+", r"\w+", " ", "[[:space:]]+", "a[bc]d*", "", r"\.", "[^,;]+", r"[a-zA-Z0-9_]+", "é"]
)
def test_plain_expressions_need_no_package(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "a", "ab", "abdd", "a b\tc", ".,;", "é", "x_1", " "]
    with_package = [(Pattern(expression, "n").matches(t), list(Pattern(expression, "n").spans(t))) for t in texts]
    monkeypatch.setitem(sys.modules, "re2", None)
    assert [
        (Pattern(expression, "n").matches(t), list(Pattern(expression, "n").spans(t))) for t in texts
    ] == with_package


@pytest.mark.parametrize("expression", ["(a+)+b", "a*b", "a|b", "a+b+", "a{9}", r"\pL", "(a)", "[a-z", r"a\b"])
def test_others_are_refused_without_the_package(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ExtraError, match=r"RegexFullMatch 'y' has the pattern .* needs the package 're2'.*\[text\]"):
        Pattern(expression, "RegexFullMatch 'y'")
