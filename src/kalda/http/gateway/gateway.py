"""Puts the gateway of one process together, and ends it."""

import asyncio
import random
from pathlib import Path
from typing import Final

from kalda.common.config_def import ConfigError
from kalda.http.gateway.access import TopicAccess
from kalda.http.gateway.consumers.endpoints import ConsumerEndpoints
from kalda.http.gateway.rules.ruled import RuleCounts, RuledEndpoints
from kalda.http.gateway.rules.rules import RuleError, Rules
from kalda.http.gateway.streams.endpoints import StreamEndpoints
from kalda.http.gateway.streams.feed import FeedLimits
from kalda.http.gateway.streams.feeds import Feeds, StreamLimits
from kalda.http.gateway.webhooks.addresses import parse_networks
from kalda.http.gateway.webhooks.endpoints import WebhookEndpoints
from kalda.http.gateway.webhooks.registry import Webhooks, WebhookSettings
from kalda.http.gateway.webhooks.ruled_sender import RuledSender
from kalda.http.gateway.writes.endpoint import WriteEndpoint
from kalda.http.gateway.writes.ledger import Ledger, LedgerSettings
from kalda.http.gateway_settings import GatewaySettings
from kalda.http.services import Services


class Gateway:
    """The objects that the gateway's routes share."""

    def __init__(self, services: Services) -> None:
        access = TopicAccess()
        self._feeds: Final = Feeds(_stream_limits(services.settings), access.forget)
        self._ledger: Final = Ledger(services.callers.process, _ledger_settings(services.settings))
        self.streams: Final = StreamEndpoints(services.callers, access, self._feeds, services.decoders)
        self.writes: Final = WriteEndpoint(services.callers, access, self._ledger, services.background)
        settings = services.settings
        port = settings.listener.port
        self.consumers: Final = ConsumerEndpoints(
            services.callers,
            access,
            settings.http_consumers_max,
            f"{settings.advertised_host}:{port}" if port else None,
        )
        rules, counts = _read_rules(settings.http_gateway_rules), RuleCounts(services.metrics)
        self.rules: Final = RuledEndpoints(rules, services.callers, counts)
        kept = WebhookSettings(settings.http_webhooks_topic, settings.http_webhooks_replication_factor)
        networks = parse_networks(settings.http_webhooks_allow)
        sender = RuledSender(networks, settings.http_webhooks_requests_max, rules, counts)
        self._webhooks: Final = Webhooks(services.callers.process, kept, sender)
        self.webhooks: Final = WebhookEndpoints(services.callers, access, self._webhooks)
        metrics = services.metrics
        metrics.gauge("kalda_http_consumers", "Consumers of groups.", lambda: self.consumers.count)
        metrics.gauge("kalda_http_streams", "Open streams.", lambda: self._feeds.readers)
        metrics.gauge("kalda_http_feeds", "Topics that are read for streams.", lambda: self._feeds.feeds)
        services.lifetime.on_stop(self._feeds.stop)
        services.lifetime.on_close(self.close)

    async def close(self) -> None:
        """End the streams and the tasks of requests."""
        await asyncio.gather(
            self._feeds.close(), self._ledger.close(), self.consumers.close(), self._webhooks.close()
        )


def _stream_limits(settings: GatewaySettings) -> StreamLimits:
    feed = FeedLimits(
        settings.http_stream_recent_records,
        settings.http_stream_recent_bytes,
        settings.http_stream_heartbeat_ms / 1000,
    )
    return StreamLimits(
        settings.http_stream_readers_max,
        settings.http_stream_consumers_max,
        settings.http_stream_stall_ms / 1000,
        feed,
    )


def _ledger_settings(settings: GatewaySettings) -> LedgerSettings:
    return LedgerSettings(
        settings.http_idempotency_topic,
        settings.http_idempotency_partitions,
        settings.http_idempotency_replication_factor,
        settings.http_idempotency_ttl_ms,
        settings.http_idempotency_bytes_max,
    )


def _read_rules(path: str | None) -> Rules:
    """Read the file of rules.

    Raises:
        ConfigError: it cannot be read, or is not valid.
    """
    if path is None:
        return Rules((), random.SystemRandom())
    name = "http.gateway.rules"
    try:
        return Rules.parse(Path(path).read_text("utf-8"), random.SystemRandom())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(name, f"`{name}`={path} cannot be read: {error}") from None
    except RuleError as error:
        raise ConfigError(name, f"`{name}`={path} is not valid: {error}") from None
