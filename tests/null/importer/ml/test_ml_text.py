"""Categories, tokens and other strings against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

from onnx import numpy_helper
from opalite.errors import OpaliteError
from opalite.importer.host.onnx_reference import run_host

from ..oracles import ML, MS, assert_same, by_ort, imported

Array = np.ndarray[Any, Any]


def text(*values: str) -> Array:
    return np.array(values, object)


WORDS = text("a", "b", "zz", "")
NUMBERS = np.array([[1, 2], [9, -1]])
LIMITS = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, -1, 0])
FLOATS = np.array([1, 2.5, np.nan, -0.0], np.float32)


def check(op: str, arrays: list[Array], outputs: tuple[int, ...] = (0,), domain: str = ML, **attrs: Any) -> None:
    got = imported(op, arrays, outputs, domain=domain, may_use_host=True, **attrs)
    assert_same(got, by_ort(op, arrays, outputs, domain=domain, **attrs))


@pytest.mark.parametrize("x", [np.array([[0, 1], [1, 5], [-3, 2]]), np.array([0.5, -1.5, np.nan, 1.99], np.float32)])
@pytest.mark.parametrize("categories", [[0, 1, -3], [1, 1, 5], [7]])
def test_one_hot_of_numbers(x: Array, categories: list[int]) -> None:
    check("OneHotEncoder", [x], cats_int64s=categories)
    check("OneHotEncoder", [x[:0]], cats_int64s=categories)


def test_one_hot_of_strings() -> None:
    check("OneHotEncoder", [WORDS], cats_strings=["b", "a", "c"])
    check("OneHotEncoder", [WORDS.reshape(2, 2)], cats_strings=["zz", "a", "b", ""], zeros=0)
    with pytest.raises(OpaliteError, match="'zz'"):
        imported("OneHotEncoder", [WORDS], domain=ML, may_use_host=True, cats_strings=["a", "b"], zeros=0)


def test_label_encoder_of_version_1() -> None:
    check("LabelEncoder", [WORDS], ml=1, classes_strings=["b", "a", "b"], default_int64=7)
    check("LabelEncoder", [NUMBERS], ml=1, classes_strings=["b", "a"], default_string="none")


@pytest.mark.parametrize("ml", [2, 4])
@pytest.mark.parametrize(
    ("x", "attrs"),
    [
        (WORDS, {"keys_strings": ["a", "b", "a"], "values_int64s": [4, 5, 6]}),
        (WORDS, {"keys_strings": ["a", "b"], "values_floats": [4.0, 5.0]}),
        (WORDS, {"keys_strings": ["a", "b"], "values_strings": ["A", "B"], "default_string": "?"}),
        (WORDS[:0], {"keys_strings": ["a"], "values_int64s": [4]}),
        (NUMBERS, {"keys_int64s": [1, 2], "values_strings": ["A", "B"]}),
        (NUMBERS, {"keys_int64s": [1, 2, 1], "values_int64s": [7, 8, 9]}),
        (NUMBERS, {"keys_int64s": list(range(100)), "values_int64s": list(range(100, 200)), "default_int64": -7}),
        (NUMBERS, {"keys_int64s": [9, 1, 9, *range(20, 90)], "values_int64s": list(range(73))}),
        (NUMBERS, {"keys_int64s": list(range(-5000, 60000, 999)), "values_floats": [float(i) for i in range(66)]}),
        (LIMITS, {"keys_int64s": list(range(-70, 0)), "values_int64s": list(range(70))}),
        (LIMITS, {"keys_int64s": [*range(70), LIMITS[0], LIMITS[1]], "values_int64s": list(range(72))}),
        (FLOATS, {"keys_floats": [1.0, 2.5, float("nan"), 0.0], "values_int64s": [7, 8, 9, 10]}),
        (FLOATS, {"keys_floats": [float(k) for k in range(1, 90)] + [float("nan")], "values_int64s": list(range(90))}),
        (FLOATS, {"keys_floats": [1.0, 2.5], "values_floats": [3.0, 4.0], "default_float": 0.5}),
    ],
)
def test_label_encoder(x: Array, attrs: dict[str, Any], ml: int) -> None:
    """Many keys are looked up in a table, few are compared; since version 4 NaN is a key."""
    check("LabelEncoder", [x], ml=ml, **attrs)


def test_whole_keys_close_together_are_a_table_on_the_device() -> None:
    attrs = {"keys_int64s": list(range(-40, 60)), "values_int64s": list(range(100, 200))}
    imported("LabelEncoder", [NUMBERS], ml=2, domain=ML, **attrs)  # nothing on the host


@pytest.mark.parametrize(
    ("op", "arrays", "attrs"),
    [
        ("Gather", [WORDS.reshape(2, 2), np.array([[1, -2]])], {"axis": 1}),
        ("Gather", [WORDS, np.array(2)], {}),
        ("Concat", [WORDS.reshape(2, 2), WORDS.reshape(2, 2)[:, :1]], {"axis": -1}),
        ("Reshape", [WORDS.reshape(2, 2), np.array([0, -1, 1])], {}),
        ("Reshape", [WORDS[:0].reshape(0, 3), np.array([3, 0])], {"allowzero": 1}),
        ("Flatten", [WORDS.reshape(2, 1, 2)], {"axis": 2}),
        ("Flatten", [WORDS.reshape(2, 1, 2)], {"axis": -1}),
        ("Transpose", [WORDS.reshape(2, 1, 2)], {"perm": [2, 0, 1]}),
        ("Transpose", [WORDS.reshape(2, 2)], {}),
    ],
)
def test_strings_are_moved(op: str, arrays: list[Array], attrs: dict[str, Any]) -> None:
    fixed = {"const": range(1, len(arrays)) if op != "Concat" else ()}
    assert_same(imported(op, arrays, **fixed, **attrs), by_ort(op, arrays, **fixed, **attrs))


@pytest.mark.parametrize("x", [WORDS, WORDS.reshape(2, 2), WORDS.reshape(1, 2, 2)])
def test_columns_of_strings(x: Array) -> None:
    check("ArrayFeatureExtractor", [x, np.array([[1, 0]])])


def test_label_encoder_of_tensors() -> None:
    keys, values = (numpy_helper.from_array(np.array(v), "t") for v in ([1, 2], [1.5, 2.5]))
    default = numpy_helper.from_array(np.array([9.0]), "t")
    check("LabelEncoder", [NUMBERS], ml=4, keys_tensor=keys, values_tensor=values, default_tensor=default)
    names, other = (oh.make_tensor("t", 8, [len(v)], [s.encode() for s in v]) for v in (["q", "w"], ["z"]))
    check("LabelEncoder", [NUMBERS], ml=4, keys_tensor=keys, values_tensor=names, default_tensor=other)


def test_category_mapper() -> None:
    check("CategoryMapper", [WORDS], cats_strings=["a", "b", "a"], cats_int64s=[5, 6, 7], default_int64=3)
    check("CategoryMapper", [NUMBERS], cats_strings=["a", "b", "c"], cats_int64s=[1, 2, 1], default_string="u")


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
def test_maps(form: str) -> None:
    """onnxruntime accepts no map here except for DictVectorizer; the standard's text is the oracle."""
    node = oh.make_node("CastMap", ["x0"], ["y0"], domain=ML, map_form=form, max_map=5, cast_to="TO_FLOAT")
    found = run_host("CastMap", ML, 1, node.SerializeToString(), [{3: "1.5", 1: "2"}])[0]
    np.testing.assert_array_equal(found, [[2, 1.5]] if form == "DENSE" else [[0, 2, 0, 1.5, 0]])
    node = oh.make_node("DictVectorizer", ["x0"], ["y0"], domain=ML, string_vocabulary=["a", "b", "c"])
    found = run_host("DictVectorizer", ML, 1, node.SerializeToString(), [{"c": 3.0, "a": 1.0, "q": 9.0}])[0]
    np.testing.assert_array_equal(found, [[1, 0, 3]])


@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("stop", [{}, {"stopwords": ["hello", "b"]}, {"stopwords": ["Hello"]}])
def test_string_normalizer(action: str, sensitive: int, stop: dict[str, Any]) -> None:
    attrs = {"case_change_action": action, "is_case_sensitive": sensitive, "locale": "C.UTF-8", **stop}
    check("StringNormalizer", [text("Hello", "b", "WORLD", "ß", "ÜBER", "hello")], domain="", **attrs)
    check("StringNormalizer", [text("Hello", "hello").reshape(1, 2)], domain="", **attrs)


LINES = text("Hello World foo-bar  baz", "", "naïve ÜBER straße", "a,b;c d")


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize(
    "how",
    [
        {"tokenexp": "[a-zA-Z]+"},
        {"tokenexp": r"\w+"},
        {"separators": [" "]},
        {"separators": [" ", ","]},
        {"separators": ["[[:space:]]+"]},
    ],
)
def test_tokenizer(how: dict[str, Any], least: int, mark: int) -> None:
    attrs = {"pad_value": "#", "mark": mark, "mincharnum": least, **how}
    for x in (LINES, LINES.reshape(2, 2), LINES[:0], text("", "")):
        check("Tokenizer", [x], domain=MS, **attrs)


def test_tokens_are_characters_for_an_empty_separator() -> None:
    check("Tokenizer", [LINES], domain=MS, pad_value="#", mark=1, mincharnum=1, separators=[""])


@pytest.mark.parametrize(
    "how", [{"tokenexp": r"\pL+"}, {"tokenexp": "l|lo"}, {"tokenexp": "(a|b)*"}, {"separators": [",|o", " "]}]
)
def test_tokens_by_the_syntax_of_re2(how: dict[str, Any]) -> None:
    check("Tokenizer", [LINES], domain=MS, pad_value="#", mark=0, mincharnum=1, **how)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "most", "skips"), [(1, 1, 0), (2, 2, 0), (1, 2, 0), (1, 2, 5), (2, 2, 5), (2, 2, 1)])
def test_n_grams(mode: str, least: int, most: int, skips: int) -> None:
    attrs: dict[str, Any] = {
        "mode": mode,
        "min_gram_length": least,
        "max_gram_length": most,
        "max_skip_count": skips,
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
    }
    rows = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]])
    for x in (rows, rows[0], rows.astype(np.int32), rows[:, :0]):
        for weights in ({}, {"weights": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}):
            check("TfIdfVectorizer", [x], domain="", **attrs, **weights)


def test_n_grams_of_strings() -> None:
    attrs = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 2]}
    pool = {"ngram_indexes": [2, 0, 1], "pool_strings": ["a", "b", "a", "b"]}
    check("TfIdfVectorizer", [text("a", "b", "a", "c").reshape(2, 2)], domain="", **attrs, **pool)


def test_strings_joined_split_and_matched() -> None:
    check("StringConcat", [text("a", "b"), text("c", "d").reshape(2, 1)], domain="", opset=20)
    for how in ({}, {"delimiter": ","}, {"delimiter": "", "maxsplit": 1}, {"delimiter": " ", "maxsplit": 1}):
        for x in (LINES, text(" a b  c ", " ", "x , y", ",,"), LINES[:0]):
            check("StringSplit", [x], (0, 1), domain="", opset=20, **how)
    for expression in (r"[a-z]+", r"\w+@\w+\.com", r"(?i)HELLO.*"):
        x = text("a@b.com", "hello", "Hello you", "", "naïve")
        check("RegexFullMatch", [x], domain="", opset=20, pattern=expression)
