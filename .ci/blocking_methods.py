"""Shows the derived methods of synchronous clients on the site as the functions that they are.

The site's generator reads the source, where ``commit = blocking(AsyncConsumer.commit)`` is an attribute.
"""

import copy
from collections.abc import Iterator
from typing import Any

import griffe


class BlockingMethods(griffe.Extension):
    """Replaces what `kalda.clients.facade.blocking` makes by the function that it is made from."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        """Replace the attributes of all classes."""
        for owner in _classes(pkg):
            for name, member in list(owner.members.items()):
                value = getattr(member, "value", None)
                if isinstance(value, griffe.ExprCall) and str(value.function) == "blocking":
                    source, _dot, method = str(value.arguments[0]).rpartition(".")
                    found = pkg.modules_collection[owner.module.resolve(source)].all_members[method]
                    owner.set_member(name, _blocking(found, member))


def _blocking(function: Any, attribute: Any) -> griffe.Function:
    shown: griffe.Function = copy.copy(function.final_target if function.is_alias else function)
    shown.labels = shown.labels - {"async"}
    shown.lineno, shown.endlineno = attribute.lineno, attribute.endlineno
    return shown


def _classes(owner: Any) -> Iterator[Any]:
    for member in owner.members.values():
        if not member.is_alias and (member.is_module or member.is_class):
            if member.is_class:
                yield member
            yield from _classes(member)
