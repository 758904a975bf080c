"""Declares the settings of delegation tokens (KIP-48)."""

from kalda.common.config_def import at_least
from kalda.common.settings import LOW, Settings, integer, long, password


class DelegationTokenConfig(Settings):
    """Whether there are delegation tokens, how many, and how long they live."""

    delegation_token_expiry_check_interval_ms = long(
        3_600_000, "Pause between searches for tokens that have ended.", at_least(1), importance=LOW
    )
    delegation_token_expiry_time_ms = long(
        86_400_000, "How long a token lives without being renewed.", at_least(1)
    )
    delegation_token_master_key = password(None, "The old name of `delegation.token.secret.key`.")
    delegation_token_max_lifetime_ms = long(
        604_800_000, "How long a token lives however often it is renewed.", at_least(1)
    )
    delegation_token_secret_key = password(
        None,
        "The secret from which those of tokens are computed; the same on all brokers. There are no tokens "
        "without it.",
    )
    kalda_delegation_token_per_user_max = integer(
        1000,
        "Delegation tokens that one user may own or have asked for; more are refused with POLICY_VIOLATION. "
        "Kalda's own.",
        at_least(1),
    )
