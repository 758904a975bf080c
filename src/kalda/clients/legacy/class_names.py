"""Makes the objects that settings name: Python objects, classes, dotted names, and Kafka's own class names.

`kafka.serializer.StringEncoder` in a properties file of 2012 is a class of this package.
"""

from collections.abc import Callable, Mapping
from importlib import import_module

from kalda.clients.errors import ClientConfigError


def object_of(setting: str, value: object, known: Mapping[str, Callable[[], object]]) -> object:
    """Return the object that a setting names.

    Args:
        setting: The name of the setting, for messages.
        value: An object or a function, which is returned; a class, of which an object is made without
            arguments; or the name of a class: one of `known`, or ``package.module.Class``.
        known: Kafka's class names, with what makes an object of each.

    Raises:
        ClientConfigError: the name leads nowhere, or the object cannot be made.
    """
    made: object = value
    if isinstance(value, str):
        made = known.get(value.strip()) or _imported(setting, value.strip(), known)
    if not isinstance(made, type):
        return made
    try:
        return made()
    except Exception as error:
        raise ClientConfigError(
            f"`{setting}`={value}: no object of class {made.__name__} without arguments: {error}"
        ) from error


def _imported(setting: str, name: str, known: Mapping[str, object]) -> object:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ClientConfigError(
            f"`{setting}`={name} is no class: {error}; it takes package.module.Class, a Python object, or "
            f"one of {', '.join(known)}"
        ) from error
