"""Reads ``@pytest.mark.kafka(…)``: which cluster a test needs.

The module imports neither pytest nor a broker: marks are read for every test that is collected.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from kalda.faults import Fault, FaultPlan
    from kalda.testing.security import Security

    Faults: TypeAlias = str | Fault | FaultPlan | Sequence[str | Fault]

BROKERS_MAX: Final = 16
"""All brokers of a test share one interpreter; more than this only slows the test down."""

_OPTIONS: Final = ("brokers", "settings", "security", "as_version", "faults")
_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


class KafkaMarkError(ValueError):
    """A mark names an unknown option or has a value that is not allowed; the message names both."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Which cluster a test needs. Tests with equal specs can share one."""

    brokers: int = 1
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of every broker by name, sorted."""
    protocol: str | None = None
    """``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL`` with the defaults of `Security`; None without."""
    security: "Security | None" = field(default=None, hash=False)
    """What the mark gives in place of a protocol's name."""
    as_version: str | None = None

    @property
    def broker_settings(self) -> dict[str, str]:
        """All settings of every broker, that of `as_version` included."""
        release = {} if self.as_version is None else {"kalda.as.version": self.as_version}
        return {**release, **dict(self.settings)}

    def __str__(self) -> str:
        texts = [f"brokers={self.brokers}"]
        if self.settings:
            texts.append(f"settings={dict(self.settings)}")
        if self.protocol is not None or self.security is not None:
            protocol = self.protocol if self.security is None else self.security.protocol
            texts.append(f"security={(protocol or '').lower()!r}")
        if self.as_version is not None:
            texts.append(f"as_version={self.as_version!r}")
        return ", ".join(texts)


@dataclass(frozen=True, slots=True)
class KafkaMark:
    """What the marks of a test say together."""

    cluster: ClusterSpec
    faults: "Faults | None" = None
    """A plan as `Cluster.apply_faults` takes it; None for no faults."""


def read_marks(marks: Iterable[tuple[tuple[object, ...], Mapping[str, object]]]) -> KafkaMark:
    """Return what the marks of a test ask for.

    Each mark is given by its arguments, the nearest to the test first. An option of a nearer mark replaces
    that of a farther one, such as a class's or a module's.

    Raises:
        KafkaMarkError: an option is unknown, or a value is not allowed.
    """
    options: dict[str, object] = {}
    for arguments, keywords in marks:
        if arguments:
            raise KafkaMarkError(
                f"@pytest.mark.kafka({', '.join(map(repr, arguments))}): options are given by name, "
                f"such as brokers=3"
            )
        for name in keywords:
            if name not in _OPTIONS:
                near = difflib.get_close_matches(name, _OPTIONS, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise KafkaMarkError(
                    f"@pytest.mark.kafka has no option {name!r}, only {', '.join(_OPTIONS)}{hint}"
                )
        options = {**keywords, **options}
    return mark_of(options)


def mark_of(options: Mapping[str, object]) -> KafkaMark:
    """Return what known options ask for.

    Raises:
        KafkaMarkError: a value is not allowed.
    """
    protocol, security = _security(options.get("security"))
    spec = ClusterSpec(
        brokers=_brokers(options.get("brokers", 1)),
        settings=_settings(options.get("settings")),
        protocol=protocol,
        security=security,
        as_version=_as_version(options.get("as_version")),
    )
    return KafkaMark(spec, _faults(options.get("faults")))


def _brokers(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= BROKERS_MAX:
        raise KafkaMarkError(f"brokers={value!r}: a test has 1 to {BROKERS_MAX} brokers")
    return value


def _settings(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise KafkaMarkError(
            f"settings={value!r}: settings are a mapping of Kafka's names to values, "
            'such as {"num.partitions": 4}'
        )
    found = {}
    for name, each in value.items():
        if not isinstance(name, str):
            raise KafkaMarkError(f"settings: the name {name!r} is not a text")
        if isinstance(each, bool):
            found[name] = str(each).lower()
        elif isinstance(each, str | int | float):
            found[name] = str(each)
        else:
            raise KafkaMarkError(f"settings: {name}={each!r} is neither a text, a number nor a truth value")
    return tuple(sorted(found.items()))


def _security(value: object) -> "tuple[str | None, Security | None]":
    if value is None:
        return None, None
    if isinstance(value, str):
        if value.lower() in _PROTOCOLS:
            protocol = value.upper()
            return (None if protocol == "PLAINTEXT" else protocol), None
        raise KafkaMarkError(
            f"security={value!r}: it takes {', '.join(map(repr, _PROTOCOLS))} "
            "or a kalda.testing.Security, which also has users and ACLs"
        )
    # Importing the class would import the brokers, also where no test needs one.
    if type(value).__name__ == "Security" and type(value).__module__ == "kalda.testing":
        return None, value  # type: ignore[return-value]  # see the line above
    raise KafkaMarkError(
        f"security={value!r}: it takes {', '.join(map(repr, _PROTOCOLS))} or a kalda.testing.Security"
    )


def _as_version(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise KafkaMarkError(f'as_version={value!r}: write the release as a text, such as as_version="2.8"')


def _faults(value: object) -> "Faults | None":
    parts = value if isinstance(value, list | tuple) else [value]
    # As with `Security`, the classes are not imported here.
    if value is None or all(
        isinstance(part, str) or type(part).__module__.startswith("kalda.faults") for part in parts
    ):
        return value  # type: ignore[return-value]  # checked above
    raise KafkaMarkError(
        f'faults={value!r}: write faults as texts, such as "produce:NOT_LEADER*2", or kalda.faults values'
    )
