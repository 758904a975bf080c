"""Reads JSON that others wrote: any bytes give a value or a `ValueError`."""

import json
import math
from typing import Any, Final, NoReturn

BODY_VALUES_MAX: Final = 200_000
"""Commas and opening brackets of one body, in texts as well; a value takes up to half a microsecond."""

BODY_ESCAPES_MAX: Final = 2_000_000


def loads_received(data: str | bytes) -> Any:
    """Return the value of a JSON text, whose texts UTF-8 can encode.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has what no message to a client can carry: half
            of a surrogate pair, an infinity or NaN.
    """
    try:
        value = _DECODER.decode(data if isinstance(data, str) else _text(data))
        if not data.isascii() or ("\\u" in data if isinstance(data, str) else b"\\u" in data):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair, such as \\ud800") from None
    return value


def loads_body(data: str | bytes) -> Any:
    """Return the value of the body of a request, which is read on the event loop.

    Raises:
        ValueError: as `loads_received`, or reading it would hold up the other clients for long.
    """
    text = data if isinstance(data, str) else _text(data)
    values, escapes = sum(map(text.count, ",[{")), text.count("\\")
    if values > BODY_VALUES_MAX or escapes > BODY_ESCAPES_MAX:
        raise ValueError(
            f"it has {values} commas and opening brackets and {escapes} backslashes; at most "
            f"{BODY_VALUES_MAX} and {BODY_ESCAPES_MAX} are allowed in one request"
        )
    return loads_received(text)


def _text(data: bytes) -> str:
    # As `json.loads` does, which makes a decoder for each call that has options.
    return data.decode(json.detect_encoding(data), "surrogatepass")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        _refuse(text)
    return number


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text:.20} is not a finite number")


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
