"""A small schema registry that speaks Confluent's REST API, for tests."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

Reference = dict[str, str | int]


class RegistryServer:
    """The state of the registry; `url` is where it listens."""

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.fail_next = 0
        """How many of the next requests fail with HTTP 503."""
        self.is_away = False
        """Whether a proxy answers, which has no registry behind it."""
        self.credentials: set[str] = set()
        """Accepted Authorization headers; empty for all."""
        self.schemas: dict[int, dict[str, object]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.incompatible: set[str] = set()
        self.levels: dict[str, str] = {}
        self.modes: dict[str, str] = {}
        self.answers = threading.Event()
        """Requests wait while it is not set."""
        self.answers.set()

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: list[Reference] | None = None
    ) -> int:
        """Return the id of a schema, a new one if the text is new."""
        document: dict[str, object] = {"schema": text}
        if kind != "AVRO":
            document["schemaType"] = kind
        if references:
            document["references"] = references
        number = next(
            (each for each, found in self.schemas.items() if found == document), len(self.schemas) + 1
        )
        self.schemas[number] = document
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: bytes, authorization: str | None) -> tuple[int, object]:
        """Return the status and the document for a request."""
        self.requests += 1
        path = path.partition("?")[0]
        self.answers.wait()
        if self.fail_next:
            self.fail_next -= 1
            return 503, {"error_code": 50300, "message": "no leader"}
        if self.is_away:
            return 404, "default backend - 404"
        if self.credentials and authorization not in self.credentials:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match method, [unquote(each) for each in path.strip("/").split("/")]:
            case "GET", ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
                return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
            case "GET", ["schemas", "ids", number, "versions"]:
                return 200, [
                    {"subject": subject, "version": ids.index(int(number)) + 1}
                    for subject, ids in self.subjects.items()
                    if int(number) in ids
                ]
            case "GET", ["subjects"]:
                return 200, list(self.subjects)
            case "GET", ["subjects", subject, "versions"]:
                return 200, list(range(1, len(self.subjects.get(subject, ())) + 1))
            case "DELETE", ["subjects", subject]:
                return 200, list(range(1, len(self.subjects.pop(subject)) + 1))
            case method, ["config" | "mode" as kind, *names]:
                return self._setting(method, kind, names, body)
            case "POST", ["compatibility", "subjects", subject, "versions", *_]:
                messages = ["{errorType:'TYPE_MISMATCH'}"] if subject in self.incompatible else []
                return 200, {"is_compatible": not messages, "messages": messages}
            case "GET", ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject)
                if not versions or (version != "latest" and int(version) > len(versions)):
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                index = len(versions) if version == "latest" else int(version)
                number_found = versions[index - 1]
                head = {"subject": subject, "version": index, "id": number_found}
                return 200, head | self.schemas[number_found]
            case "POST", ["subjects", subject, "versions"]:
                document = json.loads(body)
                if subject in self.incompatible:
                    return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
                if "id" in document:
                    return self._import(subject, document)
                references = document.get("references")
                kind = document.get("schemaType", "AVRO")
                return 200, {"id": self.register(subject, document["schema"], kind, references)}
            case "POST", ["subjects", subject]:
                wanted = {name: each for name, each in json.loads(body).items() if each}
                for index, number_found in enumerate(self.subjects.get(subject, []), 1):
                    if self.schemas[number_found] == wanted:
                        return 200, {"subject": subject, "version": index, "id": number_found} | wanted
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _setting(self, method: str, kind: str, names: list[str], body: bytes) -> tuple[int, object]:
        """Answer for a level or a mode of a subject; of all subjects where it names none."""
        values, field = (self.levels, "compatibilityLevel") if kind == "config" else (self.modes, "mode")
        name = names[0] if names else ""
        if method == "PUT":
            document = json.loads(body)
            values[name] = document.get("compatibility", document.get("mode"))
            return 200, document
        if name not in values and name:
            return 404, {"error_code": 40408, "message": f"Subject '{name}' has no {kind}"}
        value = values.get(name, "BACKWARD" if kind == "config" else "READWRITE")
        if method == "DELETE":
            del values[name]
        return 200, {field: value}

    def _import(self, subject: str, document: dict[str, object]) -> tuple[int, object]:
        if self.modes.get(subject) != "IMPORT":
            return 422, {"error_code": 42205, "message": f"Subject {subject} is not in import mode"}
        number, version = document.pop("id"), document.pop("version")
        assert isinstance(number, int)
        for reference in document.get("references") or ():  # type: ignore[attr-defined]
            if len(self.subjects.get(reference["subject"], ())) < reference["version"]:
                return 422, {"error_code": 42201, "message": "No schema reference found"}
        self.schemas[number] = document
        versions = self.subjects.setdefault(subject, [])
        assert len(versions) + 1 == version, f"version {version} comes too early"
        versions.append(number)
        return 200, {"id": number}


@contextmanager
def registry_server(tls: ssl.SSLContext | None = None) -> Iterator[RegistryServer]:
    """Run a registry on a free port of the loopback address, over TLS if it is given."""
    state = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, document = state.answer(
                self.command, self.path, self.rfile.read(length), self.headers.get("Authorization")
            )
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = respond

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="registry")
    thread.start()
    try:
        yield state
    finally:
        state.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
