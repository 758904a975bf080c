from pathlib import Path

import pytest

from kalda.common.properties import PropertiesError, parse_assignments, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb=2\n", {"a": "1", "b": "2"}),
        ("a:1\nb 2\nc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("# comment\n! another\n   # indented\n\na=1", {"a": "1"}),
        ("a=one \\\n   two \\\n   three", {"a": "one two three"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("listeners=PLAINTEXT://:9092,SSL://:9093", {"listeners": "PLAINTEXT://:9092,SSL://:9093"}),
        (r"path=C\:\\data\ttab\u00e9", {"path": "C:\\data\ttab\u00e9"}),
        (r"with\ blank\=sign=v", {"with blank=sign": "v"}),
        ("a=ends with backslash \\\\\nb=2", {"a": "ends with backslash \\", "b": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ("alone", {"alone": ""}),
        ("a=\nb=", {"a": "", "b": ""}),
        ("a=kept  ", {"a": "kept  "}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\", {"a": "1"}),
        ("\\\na=1", {"a": "1"}),
        ("", {}),
    ],
)
def test_a_file_means_what_java_takes_it_for(text: str, expected: dict[str, str]) -> None:
    assert expected == parse_properties(text)


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match="line 3 "):
        parse_properties("a=1\n\nb=\\u12\n")


def test_a_file_is_read_as_iso_8859_1(tmp_path: Path) -> None:
    """As Java does: a file saved so in Europe must not be refused for an umlaut in a comment."""
    path = tmp_path / "server.properties"
    path.write_bytes(b"# gr\xfc\xdfe\nbroker.rack=r\xe4ck\n")

    assert {"broker.rack": "r\xe4ck"} == read_properties(path)


def test_assignments_of_a_command_line() -> None:
    assert {"a": "1", "b": "x=y"} == parse_assignments(["a=1", " b = x=y "])
    for word in ("novalue", "=x", ""):
        with pytest.raises(PropertiesError, match="write name=value"):
            parse_assignments([word])
