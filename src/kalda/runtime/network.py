"""Defines the port for connections over a network."""


def address_text(host: str, port: int) -> str:
    """Return ``host:port``; an IPv6 address stands in brackets, as in ``[::1]:9092``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
