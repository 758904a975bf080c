"""AlterUserScramCredentials (key 51): set and delete SCRAM credentials (KIP-554)."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BYTES, INT8, INT16, INT32, STRING, Message, Struct, array, wire


class ScramCredentialDeletion(Struct):
    """A credential to delete."""

    name: str = wire(STRING, "0+")
    mechanism: int = wire(INT8, "0+")


class ScramCredentialUpsertion(Struct):
    """A credential to set; the password itself is never sent."""

    name: str = wire(STRING, "0+")
    mechanism: int = wire(INT8, "0+")
    iterations: int = wire(INT32, "0+")
    salt: bytes = wire(BYTES, "0+")
    salted_password: bytes = wire(BYTES, "0+")


class AlterUserScramCredentialsRequest(
    Message, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """What to delete and what to set."""

    deletions: list[ScramCredentialDeletion] = wire(array(ScramCredentialDeletion), "0+")
    upsertions: list[ScramCredentialUpsertion] = wire(array(ScramCredentialUpsertion), "0+")


class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    user: str = wire(STRING, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")


class AlterUserScramCredentialsResponse(
    Message, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """One entry per user."""

    throttle_time_ms: int = wire(INT32, "0+")
    results: list[AlterUserScramCredentialsResult] = wire(array(AlterUserScramCredentialsResult), "0+")
