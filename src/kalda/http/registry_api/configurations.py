"""Serves ``/config`` and ``/mode``, of the whole registry and of subjects."""

from typing import Any, Final

from kalda.http.errors import HttpError
from kalda.http.registry.changes import (
    decide_config,
    decide_config_deletion,
    decide_mode,
    decide_mode_deletion,
)
from kalda.http.registry.contents import Json, read_metadata
from kalda.http.registry.errors import (
    config_not_configured,
    invalid_level,
    invalid_mode,
    invalid_subject,
    mode_not_configured,
    not_permitted,
    subject_not_found,
)
from kalda.http.registry.scope import config_in_scope, mode_in_scope, own_config, own_mode
from kalda.http.registry.state import Mode
from kalda.http.registry.subjects import Subject, is_valid
from kalda.http.registry_api.calls import Call
from kalda.http.registry_api.requests import (
    checked_rule_set,
    json_object,
)
from kalda.http.registry_api.views import (
    config_json,
    config_update_json,
)
from kalda.schemas.compatibility import CompatibilityLevel, CompatibilityPolicy
from kalda.schemas.errors import SchemaError


async def get_config(call: Call) -> object:
    """Return a configuration."""
    subject, registry = call.scope_subject(), call.registry
    if call.target.flag("defaultToGlobal"):
        return config_json(config_in_scope(registry.state, subject, registry.default_level))
    config = own_config(registry.state, subject, registry.default_level)
    if config is None:
        raise config_not_configured(subject or "")
    return config_json(config)


async def put_config(call: Call) -> object:
    """Change a configuration; what the request leaves out stays."""
    subject, fields = call.scope_subject(), json_object(call.body)
    update = _config_update(fields)
    if subject is not None and not is_valid(subject, is_config=True):
        raise invalid_subject(subject)
    written: list[Json] = []

    def decide(state: Any) -> Any:
        decision, config = decide_config(state, subject, update)
        written[:] = [config]
        return decision

    await call.registry.change(decide)
    call.done(subject=subject, settings=sorted(update))
    return config_update_json(written[0])


async def delete_config(call: Call) -> object:
    """Remove a configuration, and return what it was."""
    subject, registry = call.scope_subject(), call.registry
    config = own_config(registry.state, subject, registry.default_level)
    if config is None:
        raise subject_not_found(subject or "")
    await registry.change(lambda state: decide_config_deletion(state, subject))
    call.done(subject=subject)
    return config_json(config)


async def get_mode(call: Call) -> object:
    """Return a mode."""
    subject, state = call.scope_subject(), call.registry.state
    mode = mode_in_scope(state, subject) if call.target.flag("defaultToGlobal") else own_mode(state, subject)
    if mode is None:
        raise mode_not_configured(subject or "")
    return {"mode": mode.value}


async def put_mode(call: Call) -> object:
    """Set a mode; null removes it."""
    subject, fields = call.scope_subject(), json_object(call.body)
    if subject is not None and not is_valid(subject, is_config=True):
        raise invalid_subject(subject)
    given = fields.get("mode")
    try:
        mode = None if given is None else Mode(str(given).upper())
    except ValueError:
        raise invalid_mode() from None
    if mode is Mode.FORWARD and (subject is None or not Subject.parse(subject).is_global_context):
        raise invalid_mode("Forward mode only supported on global level")
    _check_mutable(call)
    is_forced = call.target.flag("force")
    await call.registry.change(lambda state: decide_mode(state, subject, mode, is_forced=is_forced))
    call.done(subject=subject, mode=None if mode is None else mode.value)
    return {"mode": given}


async def delete_mode(call: Call) -> object:
    """Remove a mode, and return what it was."""
    subject, is_recursive = call.scope_subject(), call.target.flag("recursive")
    mode = own_mode(call.registry.state, subject)
    if mode is None and not is_recursive:
        raise subject_not_found(subject or "")
    _check_mutable(call)
    await call.registry.change(lambda state: decide_mode_deletion(state, subject, is_recursive=is_recursive))
    call.done(subject=subject)
    return {} if mode is None else {"mode": mode.value}


def _check_mutable(call: Call) -> None:
    if not call.registry.settings.mode_mutability:
        raise not_permitted("Mode changes are not allowed: `mode.mutability` is false")


_TEXT_SETTINGS: Final = ("alias", "aliasForDeks", "compatibilityPolicy", "compatibilityGroup")
_FLAG_SETTINGS: Final = ("normalize", "validateFields", "validateNewSchemas", "validateRules")


def _config_update(fields: Json) -> Json:
    update: Json = {}
    for name in _TEXT_SETTINGS:
        if name in fields:
            update[name] = _of_type(fields, name, str, "a text")
    policy = update.get("compatibilityPolicy")
    if policy is not None and policy.upper() not in set(CompatibilityPolicy):
        raise HttpError(
            422, f"compatibilityPolicy is {policy!r}; it must be {' or '.join(CompatibilityPolicy)}"
        )
    for name in _FLAG_SETTINGS:
        if name in fields:
            update[name] = _of_type(fields, name, bool, "true or false")
    if "compatibility" in fields:
        level = fields["compatibility"]
        try:
            update["compatibilityLevel"] = None if level is None else CompatibilityLevel.of(str(level)).value
        except SchemaError:
            raise invalid_level() from None
    for name in ("defaultMetadata", "overrideMetadata"):
        if name in fields:
            try:
                update[name] = read_metadata(fields[name])
            except SchemaError as error:
                raise HttpError(422, str(error)) from None
    for name in ("defaultRuleSet", "overrideRuleSet"):
        if name in fields:
            update[name] = checked_rule_set(fields[name])
    return update


def _of_type(fields: Json, name: str, kind: type, words: str) -> object:
    value = fields[name]
    if value is not None and not isinstance(value, kind):
        raise HttpError(422, f"the field {name} is {value!r:.100}; it takes {words}")
    return value
