"""The request handlers: one module per API key, which exports its `HANDLER`.

A handler turns one request message into its response and keeps no state of its own. It takes the parts of the
broker that it uses as its first arguments, or as one frozen class where they are many; `ApiHandler.build`
binds them. It does not decode, encode or count; the dispatcher does. The broker serves what is in this
package and returns the same list for ApiVersions, but for Kalda's own APIs, which only Kalda's clients see. A
request of any other API closes the connection.
"""

from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules
from typing import Final

from kalda.broker.requests.api import ApiHandler
from kalda.common.api_keys import ApiKey
from kalda.protocol.messages.api_versions import ApiVersion

HANDLERS: Final[tuple[ApiHandler, ...]] = tuple(
    sorted(
        (import_module(f"{__name__}.{module.name}").HANDLER for module in iter_modules(__path__)),
        key=attrgetter("key"),
    )
)
"""The handler of every module of this package, by ascending API key."""


def advertised_versions(*, shows_metrics: bool = True, own: Iterable[ApiKey] = ()) -> tuple[ApiVersion, ...]:
    """Return each API with the versions that ApiVersions advertises, by ascending key.

    Kalda's own APIs come last; `api_versions` leaves them out for other software. A broker that shows its
    metrics nowhere does not ask clients for theirs, as a broker of Kafka without a telemetry receiver. Few
    brokers have the APIs in `own`: those for faults and namespaces of tests, and for NATS.
    """
    served = (each for each in HANDLERS if shows_metrics or not each.is_telemetry)
    versions = tuple(
        ApiVersion(
            api_key=each.key, min_version=each.versions_advertised[0], max_version=each.versions_advertised[1]
        )
        for each in served
    )
    return (*versions, *(ApiVersion(api_key=each, min_version=0, max_version=0) for each in own))
