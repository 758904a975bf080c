"""Java's form of JSON: a registry compares texts, so each character counts."""

import pytest

from kalda.schemas.java_json import java_double, java_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (-1e21, "-1.0E21"),
        (1.5e300, "1.5E300"),
        (5e-324, "5.0E-324"),
        (123456789012345680.0, "1.2345678901234568E17"),
    ],
)
def test_doubles(value: float, text: str) -> None:
    assert text == java_double(value)


def test_values() -> None:
    value = {"a": [1, None, True, False, 1.0], "b\n": "é\x7f\x1f", "c": {}, "d": [], "e": 10**30}
    assert (
        '{"a":[1,null,true,false,1.0],"b\\n":"é\x7f\\u001F","c":{},"d":[],"e":1' + "0" * 30 + "}"
        == java_json(value)
    )
