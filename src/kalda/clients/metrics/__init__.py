"""Measures clients by Kafka's metric names; values are rates and averages over sampled windows, and totals.

Clients update sensors once for each batch or request, never for each record. `kalda.common.metrics` is the
broker's registry, whose values a scraper turns into rates.
"""
