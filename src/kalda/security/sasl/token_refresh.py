"""Decides when a client asks for a new token: well before the old one ends, as Kafka's logins do."""

from dataclasses import dataclass
from typing import Final

_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRefresh:
    """The settings ``sasl.login.refresh.…``."""

    window_factor: float = 0.8
    """The part of a token's life after which it is renewed."""
    window_jitter: float = 0.05
    """Added to the factor, times a random number below 1, so that clients do not all ask at once."""
    min_period_seconds: int = 60
    """The least time between two renewals."""
    buffer_seconds: int = 300
    """The least time that is left when a token is renewed."""

    def refresh_at_ms(self, issued_at_ms: int, expires_at_ms: int, chance: float) -> int:
        """Return when to renew a token that was fetched at `issued_at_ms`; `chance` is in 0..1.

        The minimum and the buffer are ignored where their sum exceeds the token's life.

        >>> TokenRefresh().refresh_at_ms(0, 3_600_000, chance=0)
        2880000
        """
        life_ms = expires_at_ms - issued_at_ms
        at_ms = issued_at_ms + int(life_ms * (self.window_factor + self.window_jitter * chance))
        if (self.min_period_seconds + self.buffer_seconds) * _MS > life_ms:
            return at_ms
        latest = expires_at_ms - self.buffer_seconds * _MS
        return max(min(at_ms, latest), issued_at_ms + self.min_period_seconds * _MS)
