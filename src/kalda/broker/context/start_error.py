"""The error of a broker that cannot start; it imports nothing, so that other processes can report it."""


class BrokerStartError(Exception):
    """The broker cannot start for a reason that an operator can remove; the message states the reason."""
