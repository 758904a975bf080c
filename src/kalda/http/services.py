"""Holds what the parts of the server share: made once in a process, and closed once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kalda.common.metrics import Metrics
from kalda.http.background import Background
from kalda.http.callers import Callers
from kalda.http.decoding import SchemaDecoders, schema_decoders
from kalda.http.lifetime import Lifetime
from kalda.http.registry.authorization import Authorizer
from kalda.http.registry.forwarding import Forwarder
from kalda.http.registry.registry import Registry
from kalda.http.settings import HttpSettings
from kalda.security.audit import AuditLog


@dataclass(frozen=True, slots=True)
class Services:
    """The objects that the parts of the server share."""

    settings: HttpSettings
    callers: Callers
    metrics: Metrics
    audit: AuditLog
    background: Background
    lifetime: Lifetime
    registry: Registry
    forwarder: Forwarder
    authorizer: Authorizer
    decoders: SchemaDecoders | None
    """Decodes records by the schemas of the registry; None where this process serves none."""


@asynccontextmanager
async def open_services(settings: HttpSettings) -> AsyncIterator[Services]:
    """Open the services of a process on the running event loop, and close them behind the block."""
    background = Background(settings.http_threads)
    registry = Registry(settings, background)
    forwarder = Forwarder(settings.leader_read_timeout_ms, settings.forwarding_tls())
    try:
        async with Callers(settings) as callers:
            lifetime = Lifetime()
            lifetime.on_stop(background.stop)
            try:
                yield Services(
                    settings=settings,
                    callers=callers,
                    metrics=Metrics(),
                    audit=AuditLog(),
                    background=background,
                    lifetime=lifetime,
                    registry=registry,
                    forwarder=forwarder,
                    authorizer=Authorizer(callers),
                    decoders=schema_decoders(registry, background)
                    if "registry" in settings.http_parts
                    else None,
                )
            finally:
                await lifetime.close()
    finally:
        await registry.close()
        await forwarder.close()
        background.close()
