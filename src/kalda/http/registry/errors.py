"""Defines the errors of Confluent's registry with their codes and messages, on which clients depend."""

from kalda.http.errors import HttpError


def registry_error(code: int, message: str) -> HttpError:
    """Return an error with a code of five digits, whose first three are the status."""
    return HttpError(code // 100, message, code)


def subject_not_found(subject: str) -> HttpError:
    """Return the error for a subject without versions."""
    return registry_error(40401, f"Subject '{subject}' not found.")


def version_not_found(number: int) -> HttpError:
    """Return the error for a version that a subject does not have."""
    return registry_error(40402, f"Version {number} not found.")


def schema_not_found(schema: int | str | None = None) -> HttpError:
    """Return the error for an id, a GUID or a text that no version has."""
    return registry_error(40403, "Schema not found" if schema is None else f"Schema {schema} not found")


def subject_soft_deleted(subject: str) -> HttpError:
    """Return the error for deleting a subject again."""
    return registry_error(
        40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> HttpError:
    """Return the error for removing a subject that was not deleted before."""
    return registry_error(
        40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, number: int) -> HttpError:
    """Return the error for deleting a version again."""
    return registry_error(
        40406,
        f"Subject '{subject}' Version {number} was soft deleted.Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, number: int) -> HttpError:
    """Return the error for removing a version that was not deleted before."""
    return registry_error(
        40407,
        f"Subject '{subject}' Version {number} was not deleted first before being permanently deleted",
    )


def config_not_configured(subject: str) -> HttpError:
    """Return the error for a subject without a configuration of its own."""
    return registry_error(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> HttpError:
    """Return the error for a subject without a mode of its own."""
    return registry_error(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: list[str]) -> HttpError:
    """Return the error for a schema that may not follow those before it."""
    return registry_error(
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        f"[{', '.join(messages)}]",
    )


def invalid_schema(message: str) -> HttpError:
    """Return the error for a text that is no schema."""
    return registry_error(42201, message)


def invalid_version(given: str) -> HttpError:
    """Return the error for a number of a version that none can have."""
    return registry_error(
        42202,
        f"The specified version '{given}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> HttpError:
    """Return the error for a compatibility level that does not exist."""
    return registry_error(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode(message: str | None = None) -> HttpError:
    """Return the error for a mode that does not exist."""
    return registry_error(
        42204, message or "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."
    )


def not_permitted(message: str) -> HttpError:
    """Return the error for a change that the mode forbids."""
    return registry_error(42205, message)


def reference_exists(subject: str, number: int) -> HttpError:
    """Return the error for deleting a version that schemas refer to."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={number}}}"
    return registry_error(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> HttpError:
    """Return the error for a name that no subject may have."""
    return registry_error(42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large() -> HttpError:
    """Return the error for a schema that the topic does not take."""
    return registry_error(42209, "Register operation failed because schema is too large")


def invalid_rule_set(message: str) -> HttpError:
    """Return the error for a malformed rule set."""
    return registry_error(42210, message)


def context_not_empty(context: str) -> HttpError:
    """Return the error for deleting a context with subjects."""
    return registry_error(42211, f"The specified context '{context}' is not empty.")


def store_failed(message: str) -> HttpError:
    """Return the error for a topic that cannot be written or read."""
    return registry_error(50001, message)


def timed_out(message: str) -> HttpError:
    """Return the error for a change that was not written and read back in time."""
    return registry_error(50002, message)


def forwarding_failed(message: str) -> HttpError:
    """Return the error for a writer that did not answer."""
    return registry_error(50003, message)


def unknown_leader(message: str = "Leader not known.") -> HttpError:
    """Return the error for a change while no process is elected."""
    return registry_error(50004, message)
