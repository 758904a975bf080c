"""Provides what every other package uses: error codes, API keys, clocks, settings, timers, metrics, logging.

It imports no other package of Kalda and knows nothing of brokers, topics or sockets.
"""
