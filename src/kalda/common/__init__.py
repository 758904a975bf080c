"""Provides what every other package uses: error codes, API keys, clocks, settings, timers, metrics, logging.

It imports no other package of Kalda, opens no socket, and contains no logic of brokers, logs or
clients.
"""
