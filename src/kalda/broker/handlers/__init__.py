"""The request handlers: one module per API key, each of which exports its `HANDLER`.

A broker answers what is listed here and says so in ApiVersions; what is not listed does not exist for clients.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kalda.broker.api import ApiHandler

HANDLERS: "tuple[ApiHandler, ...]" = ()
"""Every handler of this broker, by ascending API key."""
