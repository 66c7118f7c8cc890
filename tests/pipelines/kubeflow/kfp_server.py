"""A Kubeflow Pipelines API server on loopback, as far as submitting needs it, and what goes wrong on the way to one.

Its answers are kfp_server_api's own generated models, serialised by its own ApiClient: what kfp reads is what it would
write. Status codes and bodies of errors are those of the API server (backend/src/apiserver/server/*.go).
"""

import contextlib
import dataclasses
import email.parser
import email.policy
import http.server
import json
import re
import socket
import struct
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import kfp_server_api
import pytest

_API = "/apis/v2beta1"


@dataclasses.dataclass
class Fault:
    """What is answered instead, to requests whose method and path match.

    Args:
      route: A regular expression for "METHOD /path".
      status: The status; 0 drops the connection instead.
      body: The answer's body.
      times: How often; then all is well.
      after: True does what was asked first, so that only the answer is lost.
      content_type: Of the body.
      location: Where it sends the client instead.
      echoes: True answers the headers of the request as an error's message.
      drip_s: Seconds before each byte of the body.
    """

    route: str
    status: int
    body: str = '{"error": "injected", "code": 13, "message": "injected"}'
    times: int = 1
    after: bool = False
    content_type: str = "application/json"
    location: str | None = None
    echoes: bool = False
    drip_s: float = 0.0


class Refused(Exception):
    """An answer of the API that is an error."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        super().__init__(str(document))
        self.status, self.document = status, document


class KfpServer:
    """The server's state, and its address."""

    def __init__(self) -> None:
        self.pipelines: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self.experiments: dict[str, Any] = {}
        self.runs: dict[str, Any] = {}
        self.files: dict[str, str] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.faults: list[Fault] = []
        self.token: str | None = None
        self.states: list[dict[str, Any]] = []
        self.multi_user = False
        self.closing = threading.Event()
        self._models = kfp_server_api.ApiClient()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _serve(self) -> None:
                server.serve(self)

            do_GET = do_POST = _serve  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops it."""
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def count(self, route: str) -> int:
        """Returns how many requests matched."""
        return sum(bool(re.match(route, place)) for place, _ in self.requests)

    def serve(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Answers one request."""
        url = urllib.parse.urlsplit(handler.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        place = f"{handler.command} {url.path}"
        self.requests.append((place, dict(handler.headers)))
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        fault = next((fault for fault in self.faults if fault.times and re.match(fault.route, place)), None)
        status, text, kind = 200, "", "application/json"
        if fault is None or fault.after:
            try:
                if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
                    raise Refused(401, _grpc_error(16, "Request header error: there is no user identity header"))
                answer = self._answer(handler.command, url.path.removeprefix(_API), query, body, handler.headers)
                text = json.dumps(self._models.sanitize_for_serialization(answer))
            except Refused as e:
                status, text = e.status, json.dumps(e.document)
        if fault is not None:
            fault.times -= 1
            status, text, kind = fault.status, fault.body, fault.content_type
            if fault.echoes:
                text = json.dumps({"message": f"bad request: {handler.headers}"})
        if not status:
            # A reset, as of a proxy that goes away.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True
            handler.connection.close()
            return
        data = text.encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        if fault is not None and fault.location:
            handler.send_header("Location", fault.location)
        handler.end_headers()
        if fault is None or not fault.drip_s:
            handler.wfile.write(data)
            return
        with contextlib.suppress(OSError):  # the client went away
            for place in range(len(data)):
                if self.closing.wait(fault.drip_s):
                    return
                handler.wfile.write(data[place : place + 1])

    def _answer(self, method: str, path: str, query: dict[str, str], body: bytes, headers: Any) -> Any:
        routes: list[tuple[str, Callable[..., Any]]] = [
            (r"GET /healthz", lambda: kfp_server_api.V2beta1GetHealthzResponse(multi_user=self.multi_user)),
            (r"GET /pipelines", lambda: self._list("pipelines", self.pipelines, query)),
            (r"POST /pipelines/upload", lambda: self._upload(query, body, headers)),
            (r"POST /pipelines/upload_version", lambda: self._upload_version(query, body, headers)),
            (r"GET /pipelines/(?P<pipeline_id>[^/]+)/versions", lambda pipeline_id: self._versions(pipeline_id, query)),
            (r"GET /experiments", lambda: self._list("experiments", self.experiments, query)),
            (r"POST /experiments", lambda: self._create_experiment(body)),
            (r"GET /runs", lambda: self._list("runs", self.runs, query)),
            (r"POST /runs", lambda: self._create_run(body)),
            (r"GET /runs/(?P<run_id>[^/]+)", self._get_run),
        ]
        for route, answer in routes:
            found = re.fullmatch(route, f"{method} {path}")
            if found:
                return answer(**found.groupdict())
        raise Refused(404, _grpc_error(5, "Not Found"))

    def _list(self, kind: str, items: dict[str, Any], query: dict[str, str]) -> Any:
        predicates = json.loads(query["filter"])["predicates"] if query.get("filter") else []
        found = [
            item
            for item in items.values()
            if all(getattr(item, p["key"]) == p["stringValue"] and p["operation"] == 1 for p in predicates)
            and query.get("experiment_id") in (None, getattr(item, "experiment_id", None))
        ]
        if query.get("sort_by") == "created_at desc":
            found.reverse()
        found = found[: int(query.get("page_size") or 20)]
        answers = {
            "pipelines": kfp_server_api.V2beta1ListPipelinesResponse,
            "pipeline_versions": kfp_server_api.V2beta1ListPipelineVersionsResponse,
            "experiments": kfp_server_api.V2beta1ListExperimentsResponse,
            "runs": kfp_server_api.V2beta1ListRunsResponse,
        }
        return answers[kind](**{kind: found or None})

    def _versions(self, pipeline_id: str, query: dict[str, str]) -> Any:
        own = {key: version for key, version in self.versions.items() if version.pipeline_id == pipeline_id}
        return self._list("pipeline_versions", own, query)

    def _upload(self, query: dict[str, str], body: bytes, headers: Any) -> Any:
        if any(pipeline.display_name == query["name"] for pipeline in self.pipelines.values()):
            raise Refused(409, _upload_error("Failed to create a pipeline and a pipeline version"))
        pipeline = kfp_server_api.V2beta1Pipeline(
            pipeline_id=f"pipeline-{len(self.pipelines)}", display_name=query["name"], namespace=query.get("namespace")
        )
        self.pipelines[pipeline.pipeline_id] = pipeline
        self._add_version(pipeline.pipeline_id, query["name"], body, headers)
        return pipeline

    def _upload_version(self, query: dict[str, str], body: bytes, headers: Any) -> Any:
        if query["pipelineid"] not in self.pipelines:
            raise Refused(400, _upload_error("Failed to create a pipeline version"))
        own = [version for version in self.versions.values() if version.pipeline_id == query["pipelineid"]]
        if any(version.display_name == query["name"] for version in own):
            raise Refused(409, _upload_error("Failed to create a pipeline version"))
        return self._add_version(query["pipelineid"], query["name"], body, headers)

    def _add_version(self, pipeline_id: str, name: str, body: bytes, headers: Any) -> Any:
        message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
            f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body
        )
        [part] = message.iter_parts()
        assert part.get_param("name", header="content-disposition") == "uploadfile"
        assert str(part.get_filename()).endswith(".yaml")
        version = kfp_server_api.V2beta1PipelineVersion(
            pipeline_id=pipeline_id, pipeline_version_id=f"version-{len(self.versions)}", display_name=name
        )
        self.versions[version.pipeline_version_id] = version
        self.files[version.pipeline_version_id] = part.get_payload(decode=True).decode()
        return version

    def _create_experiment(self, body: bytes) -> Any:
        experiment = self._parsed(body, "V2beta1Experiment")
        experiment.experiment_id = f"experiment-{len(self.experiments)}"
        self.experiments[experiment.experiment_id] = experiment
        return experiment

    def _create_run(self, body: bytes) -> Any:
        run = self._parsed(body, "V2beta1Run")
        reference = run.pipeline_version_reference
        if reference.pipeline_version_id not in self.versions or run.experiment_id not in self.experiments:
            raise Refused(404, _grpc_error(5, "Failed to create a new run: PipelineVersion not found"))
        run.run_id = f"run-{len(self.runs)}"
        self.runs[run.run_id] = run
        return run

    def _get_run(self, run_id: str) -> Any:
        if run_id not in self.runs:
            raise Refused(404, _grpc_error(5, f"Run {run_id} not found"))
        run = self.runs[run_id]
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        run.state = state["state"]
        run.error = kfp_server_api.GooglerpcStatus(code=13, message=state["error"]) if "error" in state else None
        run.run_details = kfp_server_api.V2beta1RunDetails(
            task_details=[
                kfp_server_api.V2beta1PipelineTaskDetail(
                    display_name=name,
                    state=task,
                    error=kfp_server_api.GooglerpcStatus(code=13, message="exit code 1") if task == "FAILED" else None,
                )
                for name, task in state.get("tasks", {}).items()
            ]
        )
        return run

    def _parsed(self, body: bytes, kind: str) -> Any:
        return self._models.deserialize(type("Response", (), {"data": body.decode()}), kind)


def _grpc_error(code: int, message: str) -> dict[str, Any]:
    return {"error": message, "code": code, "message": message, "details": []}


def _upload_error(message: str) -> dict[str, Any]:
    return {"error_message": message, "error_details": message}


@pytest.fixture
def kfp_server() -> Iterator[KfpServer]:
    """A server without anything."""
    server = KfpServer()
    yield server
    server.close()
