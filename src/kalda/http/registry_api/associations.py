"""Serves the associations of topics with subjects that are in the topic of the registry.

New serializers ask for the subject of a topic before they derive it from the topic's name. Associations can
be read, so that these serializers use the same subject as with the registry that wrote them; they cannot be
changed here.
"""

from kalda.http.errors import HttpError
from kalda.http.registry.contents import Json
from kalda.http.registry_api.calls import SCHEMAS_PER_VERSIONS_MAX, Call

_ANY_NAMESPACE = "-"
_HIDDEN = ("tenant",)


async def list_of_subject(call: Call) -> object:
    """Return the associations of a subject."""
    return await _listed(call, {"subject": call.subject(2)})


async def list_of_id(call: Call) -> object:
    """Return the associations of a resource by its id."""
    return await _listed(call, {"resourceId": call.segment(2)})


async def list_of_name(call: Call) -> object:
    """Return the associations of a resource by its namespace, a cluster, and its name."""
    namespace, name = call.segment(2), call.segment(3)
    wanted = {"resourceName": name}
    if namespace != _ANY_NAMESPACE:
        wanted["resourceNamespace"] = namespace
    return await _listed(call, wanted)


async def refuse(_call: Call) -> object:
    """Refuse a change of associations."""
    raise HttpError(
        501,
        "associations of topics with subjects cannot be changed here: serializers use the subject that the "
        "name strategy gives",
        50101,
    )


async def _listed(call: Call, wanted: Json) -> object:
    target = call.target
    wanted = {**wanted, "resourceType": target.text("resourceType") or "topic"}
    kinds = target.parameters.get("associationType", ())
    lifecycle = target.text("lifecycle").upper()
    found = [
        each
        for each in call.registry.state.associations.values()
        if wanted.items() <= each.items()
        and (not kinds or each.get("associationType") in kinds)
        and (not lifecycle or str(each.get("lifecycle", "")).upper() == lifecycle)
    ]
    subjects = {str(each.get("subject")) for each in found}
    readable = await call.services.authorizer.readable(call.caller, subjects)
    shown = [
        {name: value for name, value in each.items() if name not in _HIDDEN}
        for each in found
        if str(each.get("subject")) in readable
    ]
    return target.page(shown, SCHEMAS_PER_VERSIONS_MAX, SCHEMAS_PER_VERSIONS_MAX)
