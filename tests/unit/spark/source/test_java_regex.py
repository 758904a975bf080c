import pytest

from kalda.spark.source.java_regex import UnsupportedPatternError, translate_java_regex


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", "orders", "orders-2"),
        (r"orders\..*", "orders.eu", "orders-eu"),
        (r"\Qa.b\E.*", "a.bc", "axbc"),
        (r"\Qa.b", "a.b", "axb"),
        (r"\p{Alpha}+\p{Digit}", "abc1", "abc"),
        (r"[\p{Lower}_]+", "a_b", "A_b"),
        (r"[^\p{Digit}]+", "ab", "a1"),
        (r"(?<a>x+)-\k<a>", "xx-xx", "xx-x"),
        (r"(?i)orders", "ORDERS", "order"),
        (r"a++b", "aab", "aaab-"),
        (r"t\d", "t1", "t\u0661"),
        (r"a&&b", "a&&b", "ab"),
        (r"a{2}", "aa", "a"),
        (r"a{2,}", "aaa", "a"),
        (r"a{1,2}", "aa", "aaa"),
        (r"(?i:a)b", "Ab", "AB"),
        (r"(a)\1", "aa", "a1"),
        (r"[(?<a>]+", "a<", "P"),
        (r"[(?x{,]+", "(x{", "a"),
    ],
)
def test_patterns_match_whole_names_as_in_java(pattern: str, matching: str, other: str) -> None:
    compiled = translate_java_regex(pattern)

    assert compiled.fullmatch(matching)
    assert not compiled.fullmatch(other)


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z&&[^b]]",
        "[a[bc]]",
        r"\p{IsGreek}",
        r"\R",
        "(",
        "a{2,1}",
        r"\k<nope>",
        # Octal in Java; Python ends the number after two digits.
        r"\0101",
        # Group 1 and "01" in Java, octal in Python.
        r"(a)\101",
        # Java ignores the blank in the class, Python does not.
        "(?x)[ a]b",
        "(?i-x:a)b",
        # `re.compile` raises a bare ValueError for a Unicode flag with `re.ASCII`, and for `L`.
        "(?u)a",
        "(?L)a",
        "a{99999999999}",
        # Java accepts none of these, Python all.
        "a{,3}",
        "a{b}",
        "{",
        "(?a)b",
        "(?P<a>b)",
        "(?#b)a",
        "(a)(?(1)b|c)",
        "(?<a_b>c)",
        r"\U00000041",
    ],
)
def test_what_would_mean_something_else_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        translate_java_regex(pattern)
