"""Describes the gateway as OpenAPI 3.1, and shows the description as a page without scripts."""

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from kalda import __version__
from kalda.http.gateway.streams.rendering import Format
from kalda.http.gateway.webhooks.subscription import FORMATS
from kalda.http.gateway.writes.outgoing import RECORDS_TYPE

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer", "minimum": 0}
_OBJECT: Final = {"type": "object"}

_ERROR: Final = {
    "type": "object",
    "properties": {"error_code": {"type": "integer"}, "message": _TEXT},
    "required": ["error_code", "message"],
}
_RECORD: Final = {
    "type": "object",
    "description": "A record. `value_type` says what `value` is: json, text, base64 or null.",
    "properties": {
        "topic": _TEXT,
        "partition": _NUMBER,
        "offset": _NUMBER,
        "timestamp": {"type": "integer", "description": "Milliseconds since the epoch; -1 for none."},
        "key": {},
        "key_type": {**_TEXT, "enum": ["json", "base64"]},
        "value": {},
        "value_type": {**_TEXT, "enum": ["json", "text", "base64", "null"]},
        "headers": {"type": "array", "items": {"type": "array"}},
    },
}
_NEW_RECORD: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "key": {"description": "A text, or JSON that is written as such."},
        "key_base64": _TEXT,
        "value": {"description": "JSON; null is a tombstone."},
        "text": _TEXT,
        "value_base64": _TEXT,
        "headers": {"description": "An object, or an array of pairs."},
        "partition": _NUMBER,
        "timestamp": _NUMBER,
    },
}
_PLACES: Final = {
    "type": "object",
    "properties": {
        "records": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "partition": _NUMBER,
                    "offset": _NUMBER,
                    "timestamp": {"type": "integer"},
                    "error": {"type": "object", "properties": {"status": _NUMBER, "message": _TEXT}},
                },
            },
        }
    },
}
_SUBSCRIPTION: Final = {
    "type": "object",
    "required": ["topic", "url"],
    "additionalProperties": False,
    "properties": {
        "topic": _TEXT,
        "url": {**_TEXT, "format": "uri"},
        "secret": {**_TEXT, "description": "whsec_ and base64 of 24 to 64 bytes; made if absent."},
        "format": {**_TEXT, "enum": list(FORMATS)},
        "from": {**_TEXT, "enum": ["beginning", "end"]},
        "keys": {"type": "array", "items": _TEXT},
        "headers": {"type": "array", "items": _TEXT},
        "where": {"type": "array", "items": _TEXT},
        "attempts_max": {"type": "integer", "minimum": 1, "maximum": 100},
        "timeout_ms": {"type": "integer", "minimum": 100, "maximum": 60_000},
        "dead_letter_topic": _TEXT,
    },
}


def document() -> dict[str, Any]:
    """Return the description."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kalda HTTP gateway",
            "version": __version__,
            "description": "Records of a cluster over HTTP: streams, writes, consumers and webhooks.",
        },
        "servers": [{"url": "/v1"}],
        "components": {
            "schemas": {
                "Error": _ERROR,
                "Record": _RECORD,
                "NewRecord": _NEW_RECORD,
                "Places": _PLACES,
                "Subscription": _SUBSCRIPTION,
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"basic": []}, {"bearer": []}, {}],
        "paths": _paths(),
    }


def page() -> str:
    """Return the description as HTML."""
    described = document()
    rows = []
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parameters = "".join(
                f"<li><code>{escape(each['name'])}</code> ({each['in']}): {escape(each['description'])}</li>"
                for each in operation["parameters"]
            )
            rows.append(
                f"<section><h2><code>{method.upper()} /v1{escape(path)}</code></h2>"
                f"<p>{escape(operation['summary'])}</p><ul>{parameters}</ul></section>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Kalda HTTP gateway</title></head><body>'
        f"<h1>Kalda HTTP gateway {escape(__version__)}</h1>"
        '<p>The same as <a href="/v1/openapi.json">OpenAPI</a>.</p>'
        f"{''.join(rows)}</body></html>"
    )


def _paths() -> dict[str, Any]:
    topic = _parameter("topic", "path", "The topic.")
    group = _parameter("group", "path", "The group.")
    consumer = _parameter("consumer", "path", "The id of the consumer.")
    webhook = _parameter("webhook", "path", "The name of the webhook.")
    records = _content("application/json", {"$ref": "#/components/schemas/Record"})
    return {
        "/topics/{topic}/stream": {
            "get": _operation(
                "Read records as they come, as server-sent events; a WebSocket has the same parameters.",
                [topic, *_stream_parameters()],
                {"200": {"description": "Events.", **_content("text/event-stream", _TEXT)}},
            )
        },
        "/topics/{topic}": {
            "post": _operation(
                "Write records.",
                [topic, *_write_parameters()],
                {
                    "200": _response("Where each record is.", "Places"),
                    "207": _response("Some records were refused.", "Places"),
                    "422": _response("The Idempotency-Key is another request's.", "Error"),
                },
                {
                    "required": True,
                    "content": {
                        "application/json": {"schema": {}},
                        "application/octet-stream": {"schema": _TEXT},
                        "application/x-ndjson": {"schema": _TEXT},
                        "application/cloudevents+json": {"schema": _OBJECT},
                        "application/cloudevents-batch+json": {"schema": {"type": "array"}},
                        RECORDS_TYPE: {
                            "schema": {
                                "type": "object",
                                "properties": {
                                    "records": {
                                        "type": "array",
                                        "items": {"$ref": "#/components/schemas/NewRecord"},
                                    }
                                },
                            }
                        },
                    },
                },
            )
        },
        "/groups/{group}/consumers": {
            "post": _operation(
                "Make a consumer of a group, which lives in the process that answers.",
                [group],
                {"201": {"description": "Its id and location."}},
                {"required": True, **_content("application/json", _OBJECT)},
            )
        },
        "/groups/{group}/consumers/{consumer}": {
            "delete": _operation("Leave the group.", [group, consumer], {"204": {"description": "Left."}})
        },
        "/groups/{group}/consumers/{consumer}/records": {
            "get": _operation(
                "Poll; each record has an `ack`, and waits for its acknowledgement.",
                [
                    group,
                    consumer,
                    _parameter("max", "query", "How many records at most."),
                    _parameter("timeout_ms", "query", "How long to wait for records."),
                    _parameter("key_format", "query", "As for streams."),
                    _parameter("value_format", "query", "As for streams."),
                ],
                {"200": {"description": "Records.", **records}},
            )
        },
        "/groups/{group}/consumers/{consumer}/acks": {
            "post": _operation(
                "Acknowledge records; what is acknowledged without a gap is committed.",
                [group, consumer],
                {"200": {"description": "What is committed, and what was not waiting."}},
                {"required": True, **_content("application/json", _OBJECT)},
            )
        },
        "/groups/{group}/consumers/{consumer}/renew": {
            "post": _operation("Keep an idle consumer.", [group, consumer], {"204": {"description": "Kept."}})
        },
        "/webhooks": {
            "get": _operation("List the caller's webhooks.", [], {"200": {"description": "The webhooks."}})
        },
        "/webhooks/{webhook}": {
            "get": _operation("Show a webhook.", [webhook], {"200": {"description": "The webhook."}}),
            "put": _operation(
                "Make or replace a webhook; only this response has its secret.",
                [webhook],
                {"200": {"description": "Replaced."}, "201": {"description": "Made."}},
                {"required": True, **_content("application/json", _SUBSCRIPTION)},
            ),
            "delete": _operation("Remove a webhook.", [webhook], {"204": {"description": "Removed."}}),
        },
    }


def _stream_parameters() -> list[dict[str, Any]]:
    formats = ", ".join(each.value for each in Format)
    return [
        _parameter("Last-Event-ID", "header", "Where to go on: the id of the last event that was seen."),
        _parameter("last_event_id", "query", "The same, for clients that cannot send the header."),
        _parameter("from", "query", "beginning, end, now-5m, a time, or offsets such as 0:120,1:87."),
        _parameter("partitions", "query", "Such as 0,3,5-7; all without it."),
        _parameter("key", "query", "The record has one of these keys."),
        _parameter("header", "query", "The record has the header: name or name:value."),
        _parameter("where", "query", 'What the JSON value has, such as $.price>=10 or $.a.b=="x".'),
        _parameter("isolation", "query", "read_committed or read_uncommitted."),
        _parameter("key_format", "query", "How keys are written."),
        _parameter("value_format", "query", f"How values are written: {formats}."),
    ]


def _write_parameters() -> list[dict[str, Any]]:
    return [
        _parameter("Idempotency-Key", "header", "The request is written once, however often it is sent."),
        _parameter("key", "query", "The key of the records."),
        _parameter("key_base64", "query", "The same in base64."),
        _parameter("header", "query", "A header of the records: name:value."),
        _parameter("partition", "query", "The partition of the records."),
        _parameter("timestamp", "query", "Their time, in milliseconds since the epoch."),
        _parameter("split", "query", "true makes a record of each element of a JSON array."),
    ]


def _parameter(name: str, where: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "description": text, "schema": _TEXT}


def _operation(
    summary: str,
    parameters: list[dict[str, Any]],
    responses: Mapping[str, Any],
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "summary": summary,
        "parameters": parameters,
        **({} if body is None else {"requestBody": body}),
        "responses": {**responses, "default": _response("It was refused.", "Error")},
    }


def _content(media_type: str, schema: object) -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}


def _response(text: str, schema: str) -> dict[str, Any]:
    return {"description": text, **_content("application/json", {"$ref": f"#/components/schemas/{schema}"})}
