"""Provides what every other package uses: error codes, API keys, settings, timers, metrics, logging.

It imports no other package of Kalda than `kalda.runtime`, opens no socket, and contains no logic of brokers,
logs or clients.
"""
