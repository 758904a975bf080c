"""Performs the operations that a test in another language sends to ``kalda testing``, one JSON object a line.

A line on stdin is an object with one operation, and each gets one line on stdout:

    {"namespace": {}}        {"namespace": "1", "bootstrap": "127.0.0.1:15001"}
    {"close": "1"}           {"close": "1"}
    {"kill": 0}              {"kill": 0}
    {"kil": 0}               {"error": "there is no operation 'kil', only ..."}

The module reads and writes nothing itself.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from kalda.faults import FaultPlan
from kalda.testing.cluster import Cluster
from kalda.testing.cluster_threads import ClusterError
from kalda.testing.namespace import Namespace

LINE_BYTES_MAX: Final = 1 << 20
"""How long a line may be."""

_ON_A_BROKER: Final[Mapping[str, Callable[[Cluster, int], None]]] = {
    "start": Cluster.start,
    "stop": Cluster.stop,
    "restart": Cluster.restart,
    "kill": Cluster.kill,
    "pause": Cluster.pause,
    "resume": Cluster.resume,
    "fill_disk": Cluster.fill_disk,
    "make_room": Cluster.make_room,
}
_OPERATIONS: Final = ("namespace", "close", *_ON_A_BROKER, "partition", "heal", "faults")


class ControlError(Exception):
    """A line is no operation; the message says what is wrong with it."""


class Control:
    """Performs the operations of lines on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Final = cluster
        self._namespaces: Final[dict[str, Namespace]] = {}

    def answer(self, line: bytes) -> str:
        """Perform the operation of a line and return the line that answers it; never raises."""
        try:
            return json.dumps(self._perform(line))
        except (ControlError, ClusterError, ValueError) as error:
            return json.dumps({"error": str(error)})

    def _perform(self, line: bytes) -> dict[str, object]:
        name, argument = _operation(line)
        if name == "namespace":
            return self._open(argument)
        if name == "close":
            namespace = self._namespaces.pop(argument, None) if isinstance(argument, str) else None
            if namespace is None:
                known = ", ".join(sorted(self._namespaces))
                raise ControlError(
                    f"no namespace {argument!r} is open, {f'only {known}' if known else 'and no other'}"
                )
            namespace.close()
        elif name == "partition":
            self._partition(argument)
        elif name == "heal":
            self._cluster.heal()
        elif name == "faults":
            self._plan(argument)
        else:
            if isinstance(argument, bool) or not isinstance(argument, int):
                raise ControlError(f"{name} takes the number of a broker, not {argument!r}")
            _ON_A_BROKER[name](self._cluster, argument)
        return {name: argument}

    def _open(self, argument: object) -> dict[str, object]:
        options = {} if argument is None or argument is True else argument
        if not isinstance(options, dict) or not options.keys() <= {"name"}:
            raise ControlError(f'namespace takes {{}} or {{"name": "shop"}}, not {argument!r}')
        name = options.get("name")
        if name is not None and not isinstance(name, str):
            raise ControlError(f"the name of a namespace is a text, not {name!r}")
        namespace = self._cluster.namespace(name)
        self._namespaces[namespace.name] = namespace
        return {"namespace": namespace.name, "bootstrap": namespace.bootstrap}

    def _plan(self, argument: object) -> None:
        if argument is None:
            self._cluster.clear_faults()
            return
        given = argument if isinstance(argument, list) else [argument]
        texts = [text for text in given if isinstance(text, str)]
        if len(texts) < len(given):
            raise ControlError(f'faults takes texts such as "fetch:delay=3s", or null, not {argument!r}')
        self._cluster.apply_faults(FaultPlan.parse(texts))

    def _partition(self, argument: object) -> None:
        if not isinstance(argument, list) or not all(isinstance(group, list) for group in argument):
            raise ControlError(f"partition takes groups of brokers such as [[0], [1, 2]], not {argument!r}")
        for group in argument:
            for member in group:
                if not isinstance(member, int | str):
                    raise ControlError(f"a member is a broker's number or 'coordinator', not {member!r}")
        self._cluster.partition(*argument)


def _operation(line: bytes) -> tuple[str, object]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ControlError(f"the line is not JSON: {error}") from None
    if not isinstance(value, dict) or len(value) != 1:
        raise ControlError(f"a line is an object with one operation ({', '.join(_OPERATIONS)})")
    ((name, argument),) = value.items()
    if name not in _OPERATIONS:
        raise ControlError(f"there is no operation {name!r}, only {', '.join(_OPERATIONS)}")
    return name, argument
