"""DescribeUserScramCredentials (key 50): list users and their SCRAM mechanisms (KIP-554)."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, wire


class UserName(Struct):
    """A user."""

    name: str = wire(STRING, "0+")


class DescribeUserScramCredentialsRequest(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """Names users; none or null stands for all."""

    users: list[UserName] | None = wire(array(UserName), "0+", nullable="0+")


class CredentialInfo(Struct):
    """A mechanism for which the user has a credential; 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    mechanism: int = wire(INT8, "0+")
    iterations: int = wire(INT32, "0+")


class DescribeUserScramCredentialsResult(Struct):
    """One user's mechanisms, or an error."""

    user: str = wire(STRING, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    credential_infos: list[CredentialInfo] = wire(array(CredentialInfo), "0+")


class DescribeUserScramCredentialsResponse(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """One entry per user."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = wire(array(DescribeUserScramCredentialsResult), "0+")
