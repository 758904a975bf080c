"""Defines the error of a broker that cannot start. It imports nothing, so any process can report it."""


class BrokerStartError(Exception):
    """The broker cannot start for a reason that an operator can remove; the message states the reason."""
