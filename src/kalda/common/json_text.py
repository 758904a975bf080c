"""Writes JSON that every parser reads: NaN and the infinities are texts, ``"NaN"`` or ``"-Infinity"``.

Spark's ``to_json`` writes these texts and reads them back as numbers. Words without quotes, as Python writes
them, are no JSON.
"""

import json
import math
from typing import Final

_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_SPACED: Final = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": "), allow_nan=False)


def strict_json(value: object, *, is_spaced: bool = False) -> str:
    """Return a value as JSON on one line; text that is not ASCII stays readable."""
    encoder = _SPACED if is_spaced else _COMPACT
    try:
        return encoder.encode(value)
    except ValueError:
        return encoder.encode(_with_words(value))


def float_word(value: float) -> float | str:
    """Return a number as it is, and its name where JSON has no number for it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _with_words(value: object) -> object:
    if isinstance(value, dict):
        return {
            float_word(key) if isinstance(key, float) else key: _with_words(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_words(each) for each in value]
    return float_word(value) if isinstance(value, float) else value
