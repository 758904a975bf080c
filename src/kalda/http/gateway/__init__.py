"""The gateway: streams, writes, group consumers, CloudEvents and webhooks over HTTP, under ``/v1``."""
