"""Serves contexts, what is known of the server, and what this registry does not have."""

import kalda
from kalda.http.errors import HttpError
from kalda.http.registry.changes import (
    decide_context_deletion,
)
from kalda.http.registry.registry import listed_contexts
from kalda.http.registry.subjects import context_prefix
from kalda.http.registry_api.calls import SCHEMAS_PER_VERSIONS_MAX, Call


async def list_contexts(call: Call) -> object:
    """Return the names of contexts."""
    prefix = call.target.text("contextPrefix")
    found = [each for each in listed_contexts(call.registry.state) if each.startswith(prefix)]
    return call.target.page(found, SCHEMAS_PER_VERSIONS_MAX, SCHEMAS_PER_VERSIONS_MAX)


async def delete_context(call: Call) -> object:
    """Remove a context without subjects."""
    try:
        context = context_prefix(call.segment(1))
    except ValueError as error:
        raise HttpError(400, str(error)) from None
    await call.registry.change(lambda state: decide_context_deletion(state, context))
    call.done(context=context)
    return b""


async def get_cluster_id(call: Call) -> object:
    """Return the ids of the cluster and of the registry's group."""
    registry = call.registry
    clusters = {
        "kafka-cluster": registry.cluster_id,
        "schema-registry-cluster": registry.settings.schema_registry_group_id,
    }
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


async def get_server_version(_call: Call) -> object:
    """Return the version of Kalda."""
    return {"version": kalda.__version__, "commitId": "kalda"}


async def refuse_exporters(_call: Call) -> object:
    """Refuse requests for schema linking, which this registry does not have."""
    raise HttpError(
        501, "exporters are not supported: copy schemas with `kalda schemas export` and `import`", 50101
    )
