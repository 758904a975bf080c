"""Makes the client's side of logins by name and password from a JAAS configuration."""

from collections.abc import Callable
from typing import Final

from kalda.runtime.random import random_text
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.sasl.jaas import JaasConfig
from kalda.security.sasl.mechanism import PLAIN, SaslClient
from kalda.security.sasl.plain import PlainClient
from kalda.security.sasl.scram import HASHES, NONCE_BYTES, TOKEN_AUTH, ScramClient

CLIENT_MECHANISMS: Final = (PLAIN, *HASHES)


ReadSetting = Callable[[str], object]
"""Returns the value of a setting of the login by Kafka's name."""


class LoginConfigError(ValueError):
    """A login cannot be made from its settings; the message shows no secret."""


def new_password_login(mechanism: str, jaas: JaasConfig | None) -> Callable[[str], SaslClient]:
    """Return a function that begins a login by name and password on each connection.

    Raises:
        LoginConfigError: the name or password is missing.
    """
    name, password = _credentials(mechanism, jaas)
    if mechanism == PLAIN:
        return lambda _: PlainClient(name, password)
    is_token = jaas is not None and jaas.options.get(TOKEN_AUTH, "").lower() == "true"
    return lambda _: ScramClient(
        mechanism, name, password, random_text(SYSTEM_RANDOM, NONCE_BYTES), is_token=is_token
    )


def _credentials(mechanism: str, jaas: JaasConfig | None) -> tuple[str, str]:
    module = "PlainLoginModule" if mechanism == PLAIN else "ScramLoginModule"
    if jaas is None:
        raise LoginConfigError(f"{mechanism} needs `sasl.jaas.config` with a {module}")
    if jaas.module_name != module:
        raise LoginConfigError(
            f"{mechanism} needs a {module} in `sasl.jaas.config`, which names {jaas.module_name}"
        )
    missing = [name for name in ("username", "password") if not jaas.options.get(name)]
    if missing:
        raise LoginConfigError(f"the {module} in `sasl.jaas.config` lacks {' and '.join(missing)}")
    return jaas.options["username"], jaas.options["password"]
