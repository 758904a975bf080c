"""Chooses the client's side of a login by the mechanism's name."""

from kalda.net.client.sasl_login import NewLogin
from kalda.security.sasl.client_login import (
    CLIENT_MECHANISMS,
    LoginConfigError,
    ReadSetting,
    new_password_login,
)
from kalda.security.sasl.jaas import JaasConfig
from kalda.security.sasl.mechanism import GSSAPI, OAUTHBEARER


def new_login(mechanism: str, jaas: JaasConfig | None, read: ReadSetting) -> NewLogin:
    """Return a function that begins a login on each connection; `read` returns the login's settings by name.

    Raises:
        LoginConfigError: the mechanism is not known, or one of its settings is missing or malformed.
    """
    if mechanism in CLIENT_MECHANISMS:
        return new_password_login(mechanism, jaas)
    if mechanism == OAUTHBEARER:
        # Imported here: other clients start faster without it.
        from kalda.net.client.oauth_login import new_oauth_login

        return new_oauth_login(jaas, read)
    if mechanism == GSSAPI:
        from kalda.security.sasl.kerberos import GssapiClient, initiator, service_name

        service = service_name(jaas, read("sasl.kerberos.service.name"))
        credentials = initiator(jaas)
        return lambda host: GssapiClient(credentials, service, host)
    known = ", ".join((*CLIENT_MECHANISMS, OAUTHBEARER, GSSAPI))
    raise LoginConfigError(f"`sasl.mechanism`={mechanism} is not supported; it takes {known}")
