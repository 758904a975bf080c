"""Types the keyword arguments of `Admin` and `AsyncAdmin`; `admin_config` declares the settings."""

from kalda.clients.config.client_options import CommonClientOptions
from kalda.common.public import public


@public
class AdminOptions(CommonClientOptions, total=False):
    """The settings of `AdminConfig`; a unit test keeps the two equal."""

    default_api_timeout_ms: int
    retries: int
