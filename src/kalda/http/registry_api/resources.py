"""Lists the resources of the REST API: path, method, handler and what it needs."""

from typing import Final

from kalda.http.registry.authorization import Operation
from kalda.http.registry_api import associations, compatibility, configurations, schemas, server, subjects
from kalda.http.registry_api.calls import Handler, Resource


def _resource(
    line: str, handler: Handler, operation: Operation, *, writes: bool = False, status: int = 200
) -> Resource:
    method, _, path = line.partition(" ")
    return Resource(method, tuple(path.strip("/").split("/")), handler, operation, writes, status)


_VERSION: Final = "/subjects/{subject}/versions/{version}"

RESOURCES: Final[tuple[Resource, ...]] = (
    _resource("GET /schemas", schemas.list_schemas, Operation.READ_ALL),
    _resource("GET /schemas/types", schemas.get_types, Operation.NONE),
    _resource("GET /schemas/ids/{id}", schemas.get_schema, Operation.READ_ID),
    _resource("GET /schemas/ids/{id}/schema", schemas.get_schema_text, Operation.READ_ID),
    _resource("GET /schemas/ids/{id}/subjects", schemas.get_id_subjects, Operation.READ_ID),
    _resource("GET /schemas/ids/{id}/versions", schemas.get_id_versions, Operation.READ_ID),
    _resource("GET /schemas/guids/{guid}", schemas.get_schema_by_guid, Operation.READ_ID),
    _resource("GET /schemas/guids/{guid}/ids", schemas.get_ids_by_guid, Operation.READ_ID),
    _resource("GET /subjects", subjects.list_subjects, Operation.READ_ALL),
    _resource("POST /subjects/{subject}", subjects.look_up, Operation.READ),
    _resource("DELETE /subjects/{subject}", subjects.delete_subject, Operation.DELETE, writes=True),
    _resource("GET /subjects/{subject}/metadata", subjects.get_latest_with_metadata, Operation.READ),
    _resource("GET /subjects/{subject}/versions", subjects.list_versions, Operation.READ),
    _resource("POST /subjects/{subject}/versions", subjects.register, Operation.WRITE, writes=True),
    _resource(f"GET {_VERSION}", subjects.get_version, Operation.READ),
    _resource(
        f"DELETE {_VERSION}",
        subjects.delete_version,
        Operation.DELETE,
        writes=True,
    ),
    _resource(f"POST {_VERSION}/tags", subjects.change_tags, Operation.WRITE, writes=True),
    _resource(f"GET {_VERSION}/schema", subjects.get_version_text, Operation.READ),
    _resource(f"GET {_VERSION}/referencedby", subjects.get_referenced_by, Operation.READ),
    _resource(
        f"POST /compatibility{_VERSION}",
        compatibility.check_version,
        Operation.READ,
    ),
    _resource("POST /compatibility/subjects/{subject}/versions", compatibility.check_subject, Operation.READ),
    _resource("GET /config", configurations.get_config, Operation.READ),
    _resource("PUT /config", configurations.put_config, Operation.ALTER, writes=True),
    _resource("DELETE /config", configurations.delete_config, Operation.ALTER, writes=True),
    _resource("GET /config/{subject}", configurations.get_config, Operation.READ),
    _resource("PUT /config/{subject}", configurations.put_config, Operation.ALTER, writes=True),
    _resource("DELETE /config/{subject}", configurations.delete_config, Operation.ALTER, writes=True),
    _resource("GET /mode", configurations.get_mode, Operation.READ),
    _resource("PUT /mode", configurations.put_mode, Operation.ALTER, writes=True),
    _resource("DELETE /mode", configurations.delete_mode, Operation.ALTER, writes=True),
    _resource("GET /mode/{subject}", configurations.get_mode, Operation.READ),
    _resource("PUT /mode/{subject}", configurations.put_mode, Operation.ALTER, writes=True),
    _resource("DELETE /mode/{subject}", configurations.delete_mode, Operation.ALTER, writes=True),
    _resource("GET /contexts", server.list_contexts, Operation.NONE),
    _resource("DELETE /contexts/{context}", server.delete_context, Operation.ALTER, writes=True, status=204),
    _resource("GET /v1/metadata/id", server.get_cluster_id, Operation.NONE),
    _resource("GET /v1/metadata/version", server.get_server_version, Operation.NONE),
    _resource("GET /associations/subjects/{subject}", associations.list_of_subject, Operation.READ_ALL),
    _resource("GET /associations/resources/{id}", associations.list_of_id, Operation.READ_ALL),
    _resource("PUT /associations/resources/{id}", associations.refuse, Operation.NONE),
    _resource("DELETE /associations/resources/{id}", associations.refuse, Operation.NONE),
    _resource(
        "GET /associations/resources/{namespace}/{name}", associations.list_of_name, Operation.READ_ALL
    ),
    _resource("POST /associations", associations.refuse, Operation.NONE),
    _resource("PUT /associations", associations.refuse, Operation.NONE),
    _resource("GET /exporters", server.refuse_exporters, Operation.NONE),
    _resource("POST /exporters", server.refuse_exporters, Operation.NONE),
    _resource("GET /exporters/{name}", server.refuse_exporters, Operation.NONE),
    _resource("PUT /exporters/{name}", server.refuse_exporters, Operation.NONE),
    _resource("DELETE /exporters/{name}", server.refuse_exporters, Operation.NONE),
    _resource("GET /exporters/{name}/config", server.refuse_exporters, Operation.NONE),
    _resource("PUT /exporters/{name}/config", server.refuse_exporters, Operation.NONE),
    _resource("GET /exporters/{name}/status", server.refuse_exporters, Operation.NONE),
    _resource("PUT /exporters/{name}/pause", server.refuse_exporters, Operation.NONE),
    _resource("PUT /exporters/{name}/reset", server.refuse_exporters, Operation.NONE),
    _resource("PUT /exporters/{name}/resume", server.refuse_exporters, Operation.NONE),
)
"""All resources. Of several patterns that match a path, the first one counts."""
