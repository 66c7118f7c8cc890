"""Submitting, to a server that speaks the real API's JSON: what comes to be there, and what is said when it fails."""

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.cli import main
from lockstep.pipelines.kubeflow import submission
from lockstep.pipelines.kubeflow.client import Connection
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.kubeflow.server import Server
from tests.pipelines.conftest import Project
from tests.pipelines.kubeflow.kfp_server import Fault, KfpServer, kfp_server

__all__ = ["kfp_server"]

_GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "taxi.yaml"
_HTML = "<!DOCTYPE html><html><body>Log in to your account</body></html>"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Neither the environment nor kfp's own file says anything."""
    for name in list(os.environ):
        if name.startswith(("KF_PIPELINES", "LOCKSTEP_KFP")):
            monkeypatch.delenv(name)
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "context.json"))


@pytest.fixture(scope="module")
def package() -> Package:
    """The taxi pipeline as it is compiled."""
    return submission.read_package(_GOLDEN)


@pytest.fixture
def connect(kfp_server: KfpServer) -> Callable[..., Connection]:
    """Makes connections that do not sleep."""

    def make(endpoint: str = "", **options: Any) -> Connection:
        return Connection(Server(endpoint=endpoint or kfp_server.endpoint, **options), pause=lambda seconds: None)

    return make


def test_a_package_becomes_a_pipeline_then_a_version_then_a_run(
    kfp_server: KfpServer, connect: Any, package: Package
) -> None:
    """The second upload goes to the same pipeline, byte for byte what was validated; the run has its own root."""
    connection = connect()
    first = submission.upload(connection, package, None)
    second = submission.upload(connection, package, "second")
    [pipeline] = kfp_server.pipelines.values()
    assert pipeline.display_name == package.name
    assert [first.version_id, second.version_id] == list(kfp_server.versions) == ["version-0", "version-1"]
    assert kfp_server.versions["version-1"].display_name == "second"
    assert Package.from_yaml(kfp_server.files["version-1"]) == package
    assert second.link == f"{kfp_server.endpoint}/#/pipelines/details/pipeline-0/version/version-1"
    arguments = submission.run_arguments(package, ["train_steps=7", "data_path=s3://b/x.csv"])
    run = submission.start(connection, package, second, name=None, experiment="trials", arguments=arguments)
    [stored] = kfp_server.runs.values()
    assert run.link == f"{kfp_server.endpoint}/#/runs/details/{stored.run_id}"
    assert stored.pipeline_version_reference.pipeline_version_id == "version-1"
    assert stored.runtime_config.parameters == {"train_steps": 7, "data_path": "s3://b/x.csv"}
    assert stored.runtime_config.pipeline_root == package.spec["defaultPipelineRoot"]
    assert stored.display_name.startswith(f"{package.name} 2")
    [experiment] = kfp_server.experiments.values()
    assert (experiment.display_name, stored.experiment_id) == ("trials", experiment.experiment_id)
    submission.start(connection, package, second, name="again", experiment="trials", arguments={})
    assert len(kfp_server.experiments) == 1


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("train_step=7", "--set train_step: the package has no such parameter; did you mean train_steps?"),
        ("x=7", r"--set x: the package has no such parameter \(there are: data_path, train_steps, train_workers\)"),
        ("train_steps=many", "--set train_steps=many: 'many' is not allowed; give a whole number"),
        ("train_steps=7.5", "7.5 is not allowed; give a whole number"),
        ("train_steps=true", "True is not allowed; give a whole number"),
        ("train_steps", "--set train_steps: spell it key=value"),
        (
            "train_steps=" + "9" * 400,
            r"^--set train_steps=9{80}\.\.\. \(400 characters\): is not allowed; give a whole",
        ),
        (
            "train_steps=" + "9" * 5000,
            r"^--set train_steps=9{80}\.\.\. \(5000 characters\): the value is not valid YAML.{,90}$",
        ),
        ("train_steps=0x" + "f" * 5000, "is not allowed; give a whole number from -2"),
        ("train_steps=[0x" + "f" * 5000 + "]", "a number of thousands of digits is not allowed; give a whole number$"),
        ("train_steps=-9007199254740993", "is not allowed; give a whole number from -2"),
        ("train_steps=1e999", "inf is not allowed; give a whole number"),
    ],
)
def test_a_parameter_that_is_not_the_packages_is_refused(package: Package, assignment: str, message: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match=message):
        submission.run_arguments(package, [assignment])


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("NUMBER_DOUBLE", "1e999", "there is a number in it that JSON or Kubeflow cannot hold"),
        ("NUMBER_DOUBLE", ".nan", "there is a number in it that JSON or Kubeflow cannot hold"),
        ("NUMBER_DOUBLE", "9" * 400, "there is a number in it that JSON or Kubeflow cannot hold"),
        ("LIST", "[1, {a: [.nan]}]", "there is a number in it that JSON or Kubeflow cannot hold"),
        ("LIST", "[0x" + "f" * 5000 + "]", "there is a number in it that JSON or Kubeflow cannot hold"),
        ("STRUCT", "{a: &x [*x]}", "cannot hold"),
        ("LIST", "[!!binary YQ==]", "there is something in it that JSON cannot hold"),
    ],
)
def test_a_value_that_json_cannot_hold_is_refused(package: Package, kind: str, value: str, problem: str) -> None:
    """At whatever depth, in a message of one terminal's lines; what it can hold is taken."""
    document = json.loads(json.dumps(package.spec))
    document["root"]["inputDefinitions"]["parameters"]["x"] = {"parameterType": kind, "isOptional": True}
    with pytest.raises(ConfigurationError, match=problem) as caught:
        submission.run_arguments(Package(spec=document), [f"x={value}"])
    assert len(str(caught.value)) < 300
    fine = {"NUMBER_DOUBLE": 1e300, "LIST": [1, [2.5, None]], "STRUCT": {"a": [-3]}}[kind]
    assert submission.run_arguments(Package(spec=document), [f"x={json.dumps(fine)}"]) == {"x": fine}


def test_a_parameter_without_default_is_required(package: Package) -> None:
    """Kubeflow would create the run, and fail it."""
    document = json.loads(json.dumps(package.spec))
    del document["root"]["inputDefinitions"]["parameters"]["train_steps"]["defaultValue"]
    with pytest.raises(ConfigurationError, match=r"--set train_steps=\.\.\.: required"):
        submission.run_arguments(Package(spec=document), [])


def test_text_is_taken_as_it_stands(package: Package) -> None:
    """No YAML makes a number, or nothing, of it."""
    assert submission.run_arguments(package, ["data_path=12"]) == {"data_path": "12"}
    assert submission.run_arguments(package, ["data_path=a=b"]) == {"data_path": "a=b"}


def _upload_run_and_wait(connection: Connection, package: Package) -> None:
    version = submission.upload(connection, package, None)
    run = submission.start(connection, package, version, name=None, experiment="e", arguments={})
    submission.wait(connection, run, lambda line: None, pause=lambda seconds: None)


_FAILURES = [
    (
        Fault("POST .*upload", 401),
        ConfigurationError,
        "answered 401: injected; it wants to know who asks: set LOCKSTEP_KFP",
    ),
    (Fault("GET .*healthz", 403), ConfigurationError, "could not reach the API: .* answered 403: injected"),
    (
        Fault("GET .*healthz", 404, "404 page not found"),
        ConfigurationError,
        "404 page not found; give the address of a Kube",
    ),
    (
        Fault("GET .*healthz", 200, _HTML, content_type="text/html"),
        ConfigurationError,
        "a web page, .* may be a login page",
    ),
    (Fault("GET .*healthz", 200, "[]"), ConfigurationError, r"answered '\[\]', not as Kubeflow Pipelines' API does"),
    (Fault("GET .*/pipelines", 200, _HTML), ConfigurationError, "answered a web page"),
    (
        Fault("POST .*upload", 413, _HTML),
        ConfigurationError,
        "answered 413; the package is larger than the server, or a proxy",
    ),
    (Fault("POST .*upload", 400, '{"error_message": "bad spec"}'), ConfigurationError, "answered 400: bad spec"),
    (
        Fault("GET .*/pipelines", 400, '{"message": "empty Namespace"}'),
        ConfigurationError,
        "; give yours by --namespace",
    ),
    (Fault("POST .*upload", 500, times=9), StepFailed, r"answered 500: injected; look at the API server's log"),
    (
        Fault("GET .*/pipelines", 503, "", times=9),
        StepFailed,
        "could not look for the pipeline: .* answered 503; look at",
    ),
    (Fault("GET .*/pipelines", 0, times=9), StepFailed, "no answer: .*; look whether the address is right"),
    (Fault("POST .*upload", 0, times=9), StepFailed, "no answer: "),
    (
        Fault("GET .*versions", 200, "{}", times=9),
        StepFailed,
        "the answer names no version; is this Kubeflow Pipelines 2",
    ),
    (
        Fault("GET .*/pipelines", 302, "", location="/dex/auth?state=x"),
        ConfigurationError,
        r"sends on to /dex/auth; it may be a login page: set LOCKSTEP_KFP_TOKEN",
    ),
    (Fault("POST .*upload", 400, "\x1b[31m\n bad"), ConfigurationError, r"answered 400: \[31m bad$"),
]


@pytest.mark.parametrize(("fault", "kind", "message"), _FAILURES)
def test_a_failure_is_one_line_with_a_remedy(
    kfp_server: KfpServer, connect: Any, package: Package, fault: Fault, kind: type[Exception], message: str
) -> None:
    """Whatever part of the way it comes from."""
    kfp_server.faults = [Fault(**vars(fault))]
    with pytest.raises(kind, match=message) as caught:
        submission.upload(connect(), package, None)
    assert "\n" not in str(caught.value)
    assert kfp_server.endpoint in str(caught.value)
    assert "<" not in str(caught.value)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("GET .*/pipelines", '{"pipelines": 5}'),
        ("GET .*/pipelines", '{"pipelines": "abc"}'),
        ("GET .*/pipelines", '{"pipelines": [null]}'),
        ("GET .*/pipelines", '{"pipelines": [{"display_name": 5}]}'),
        ("POST .*/upload", '{"pipeline_id": {"a": 1}}'),
        ("POST .*/upload", '{"pipeline_id": "p", "created_at": "garbage"}'),
        ("GET .*/versions", '{"pipeline_versions": [[]]}'),
        ("GET .*/runs/", '{"state": 5}'),
        ("GET .*/runs/", '{"run_details": 5}'),
        ("GET .*/runs/", '{"run_details": {"task_details": [null]}}'),
        ("GET .*/runs/", '{"run_details": {"task_details": [{"child_tasks": 5}]}}'),
    ],
)
def test_an_answer_of_other_types_is_told_at_once(
    kfp_server: KfpServer, connect: Any, package: Package, route: str, body: str
) -> None:
    """It is an answer, so asking again does not help; what is wrong in it is not quoted."""
    connection = connect()
    kfp_server.faults = [Fault(route, 200, body, times=9)]
    with pytest.raises(StepFailed, match="answered what kfp does not understand; is this Kubeflow Pipelines 2's API"):
        _upload_run_and_wait(connection, package)
    assert kfp_server.faults[0].times == 8


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("route", ["GET ", "POST .*upload"])
def test_a_redirect_is_told_and_not_followed(
    kfp_server: KfpServer, connect: Any, package: Package, status: int, route: str
) -> None:
    """Whoever it names would get the package."""
    other = KfpServer()
    try:
        place = f"{other.endpoint.replace('//', '//me:secret@')}/pipeline/apis/v2beta1/x?token=secret"
        kfp_server.faults = [Fault(route, status, "", location=place)]
        with pytest.raises(ConfigurationError) as caught:
            submission.upload(connect(token="t0ken"), package, None)
        assert f"moved to {other.endpoint}/pipeline; give that as --endpoint" in str(caught.value)
        assert "secret" not in str(caught.value)
        assert other.requests == []
    finally:
        other.close()


def test_an_answer_that_drips_is_not_waited_for(kfp_server: KfpServer, package: Package) -> None:
    """Each byte comes in time, the whole does not; where it was done meanwhile, it is found."""
    connection = Connection(Server(endpoint=kfp_server.endpoint), pause=lambda seconds: None, limit_s=0.5)
    kfp_server.faults = [Fault("POST .*upload", 200, after=True, drip_s=0.2)]
    submission.upload(connection, package, None)
    assert kfp_server.count("POST .*/upload$") == 1
    assert len(kfp_server.pipelines) == 1
    kfp_server.faults = [Fault("GET .*/pipelines", 200, drip_s=0.2, times=9)]
    with pytest.raises(
        StepFailed, match=r"could not look for the pipeline: .* gave no whole answer within 0.5 s; look"
    ):
        submission.upload(connection, package, None)
    assert kfp_server.faults[0].times == 5


def test_a_server_that_ignores_the_filter_is_not_believed(
    kfp_server: KfpServer, connect: Any, package: Package
) -> None:
    """A package never becomes a version of someone else's pipeline, nor another version or run ours."""
    other = '{"pipelines": [{"pipeline_id": "other", "display_name": "someone else\'s"}]}'
    connection = connect()
    kfp_server.faults = [Fault("GET .*/pipelines$", 200, other)]
    submission.upload(connection, package, None)
    assert kfp_server.count("POST .*/upload$") == 1
    versions = '{"pipeline_versions": [{"pipeline_version_id": "other", "display_name": "other"}]}'
    kfp_server.faults = [Fault("POST .*/upload_version", 500), Fault("GET .*/versions", 200, versions)]
    version = submission.upload(connection, package, "mine")
    assert (version.version_id, kfp_server.versions[version.version_id].display_name) == ("version-1", "mine")
    runs = (
        '{"runs": [{"run_id": "other", "display_name": "other", "pipeline_version_reference":'
        ' {"pipeline_id": "pipeline-0", "pipeline_version_id": "version-1"}}]}'
    )
    kfp_server.faults = [Fault("POST .*/runs", 500), Fault("GET .*/runs$", 200, runs)]
    run = submission.start(connection, package, version, name="mine", experiment="e", arguments={})
    assert run.run_id == "run-0"


@pytest.mark.parametrize("status", [0, 429, 500, 503])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "route", ["POST .*/upload$", "POST .*/upload_version", "POST .*/experiments", "POST .*/runs", "GET "]
)
def test_what_fails_once_is_done_once(
    kfp_server: KfpServer, connect: Any, package: Package, route: str, after: bool, status: int
) -> None:
    """Also where it was done and only the answer was lost: one pipeline, one run, no version that nobody knows of."""
    connection = connect()
    if "upload_version" in route:
        submission.upload(connect(), package, None)
    kfp_server.faults = [Fault(route, status, after=after)]
    version = submission.upload(connection, package, None)
    run = submission.start(connection, package, version, name=None, experiment="e", arguments={})
    assert kfp_server.faults[0].times == 0
    assert len(kfp_server.pipelines) == 1
    assert version.version_id == list(kfp_server.versions)[-1]
    assert list(kfp_server.runs) == [run.run_id]


def test_a_name_that_is_taken_is_told(kfp_server: KfpServer, connect: Any, package: Package) -> None:
    """A version's name is one pipeline's own."""
    connection = connect()
    submission.upload(connection, package, None)
    submission.upload(connection, package, "mine")
    with pytest.raises(
        ConfigurationError, match=r"answered 409.*a version called 'mine' is there: give another --name"
    ):
        submission.upload(connection, package, "mine")
    kfp_server.faults = [Fault("GET .*/pipelines", 200, "{}", times=9)]
    with pytest.raises(ConfigurationError, match="is there, but not to be seen by you"):
        submission.upload(connection, package, None)


def test_a_server_that_is_not_there_is_told(connect: Any, package: Package) -> None:
    """Refused, unknown, or without TLS."""
    with pytest.raises(StepFailed, match=r"http://127\.0\.0\.1:9: no answer: .*refused"):
        submission.upload(connect("http://127.0.0.1:9"), package, None)
    with pytest.raises(StepFailed, match=r"no-such-host\.invalid: no answer: "):
        submission.upload(connect("http://no-such-host.invalid"), package, None)


def test_a_certificate_that_nobody_knows_is_told(kfp_server: KfpServer, connect: Any, package: Package) -> None:
    """And a server without any."""
    with pytest.raises(ConfigurationError, match=r"no secure connection: .*--ca-cert FILE, or http://"):
        submission.upload(connect(kfp_server.endpoint.replace("http", "https")), package, None)
    with pytest.raises(ConfigurationError, match=r"--ca-cert /nowhere\.pem: no such file"):
        submission.upload(connect(kfp_server.endpoint.replace("http", "https"), ca_file="/nowhere.pem"), package, None)


def test_a_token_is_sent_and_never_shown(
    kfp_server: KfpServer, connect: Any, package: Package, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given itself, or in a file; not in the package, a message, or a log."""
    kfp_server.token = "t0ken-of-mine"
    caplog.set_level("DEBUG")
    server = Server.from_environ(
        {"LOCKSTEP_KFP_TOKEN": "t0ken-of-mine", "KF_PIPELINES_ENDPOINT": kfp_server.endpoint + "/"},
        endpoint=None,
        namespace=None,
        ca_file=None,
    )
    assert "t0ken" not in repr(server)
    submission.upload(Connection(server), package, None)
    (tmp_path / "token").write_text("t0ken-of-mine")
    submission.upload(connect(token_file=str(tmp_path / "token")), package, None)
    with pytest.raises(ConfigurationError, match="the token or cookie that is set is not taken") as caught:
        submission.upload(connect(token="t0ken-of-others"), package, None)
    assert "t0ken" not in str(caught.value) + caplog.text + "".join(kfp_server.files.values())
    submission.upload(connect(token="t0ken-of-mine", cookie="authservice_session=crumb"), package, None)
    assert kfp_server.requests[-1][1]["Cookie"] == "authservice_session=crumb"


@pytest.mark.parametrize(
    "given", [{"token": "t0ken-of-mine"}, {"cookie": "a=b; session=t0ken-of-mine"}, {"token_file": "token"}]
)
@pytest.mark.parametrize("route", ["GET .*healthz", "GET .*/pipelines", "POST .*upload", "GET .*/runs/"])
def test_a_credential_that_the_server_says_again_is_not_shown(
    kfp_server: KfpServer,
    connect: Any,
    package: Package,
    given: dict[str, str],
    route: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy may answer a request's own headers, in an error, a page, or a run's reason."""
    (tmp_path / "token").write_text("t0ken-of-mine\n")
    monkeypatch.chdir(tmp_path)
    connection = connect(**given)
    kfp_server.faults = [Fault(route, 400, echoes=True)]
    with pytest.raises(ConfigurationError, match=r"answered 400: bad request: .*\[\.\.\.\]") as caught:
        _upload_run_and_wait(connection, package)
    assert "t0ken" not in str(caught.value)
    kfp_server.faults = [Fault("GET .*/pipelines", 200, '"t0ken-of-mine"')]
    with pytest.raises(ConfigurationError, match="as Kubeflow Pipelines' API does") as caught:
        submission.upload(connection, package, None)
    assert "t0ken" not in str(caught.value)


def test_a_runs_own_words_are_shown_without_a_credential(kfp_server: KfpServer, connect: Any, package: Package) -> None:
    """Its tasks' names and its reason come from the server, too."""
    connection = connect(token="t0ken-of-mine")
    version = submission.upload(connection, package, None)
    run = submission.start(connection, package, version, name=None, experiment="e", arguments={})
    kfp_server.states = [{"state": "FAILED", "error": "no t0ken-of-mine", "tasks": {"t0ken-of-mine": "RUNNING"}}]
    lines: list[str] = []
    with pytest.raises(StepFailed, match=r"the run failed: no \[\.\.\.\]; see"):
        submission.wait(connection, run, lines.append)
    assert lines == ["[...]: running", "run: failed"]


@pytest.mark.parametrize("variable", ["LOCKSTEP_KFP_TOKEN", "LOCKSTEP_KFP_COOKIE", "KF_PIPELINES_SA_TOKEN_PATH"])
@pytest.mark.parametrize("bad", ["s3cr3t\nx", "s3cr3t\x00", "s3cr3t\u201d", "s3cr3t\x7f", "s3cr3t\udcff"])
def test_a_credential_that_cannot_be_sent_is_refused(
    kfp_server: KfpServer, variable: str, bad: str, tmp_path: pathlib.Path
) -> None:
    """With the variable's name, without its value, before anything is sent; space around it is no part of it."""
    file = tmp_path / "token"

    def upload(value: str) -> None:
        file.write_bytes(value.encode(errors="surrogateescape"))
        environ = {variable: str(file) if "PATH" in variable else value}
        server = Server.from_environ(environ, endpoint=kfp_server.endpoint, namespace=None, ca_file=None)
        Connection(server).read("look", "list_pipelines")

    with pytest.raises(ConfigurationError, match=f"^{variable}") as caught:
        upload(bad)
    assert "s3cr3t" not in str(caught.value)
    assert kfp_server.requests == []
    upload(" fine\r\n")
    sent = kfp_server.requests[-1][1]
    assert sent["Cookie" if "COOKIE" in variable else "authorization"].endswith("fine")


def test_a_token_file_without_a_token_is_told(connect: Any, tmp_path: pathlib.Path) -> None:
    """Absent, or empty."""
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigurationError, match=r"^KF_PIPELINES_SA_TOKEN_PATH .*empty: is empty"):
        connect(token_file=str(tmp_path / "empty")).read("look", "list_pipelines")
    with pytest.raises(ConfigurationError, match=r"^KF_PIPELINES_SA_TOKEN_PATH .*absent: No such file"):
        connect(token_file=str(tmp_path / "absent")).read("look", "list_pipelines")


def test_a_namespace_is_part_of_what_is_asked(kfp_server: KfpServer, connect: Any, package: Package) -> None:
    """On a server of several users."""
    kfp_server.multi_user = True
    connection = connect(namespace="team-a")
    version = submission.upload(connection, package, None)
    submission.start(connection, package, version, name=None, experiment="e", arguments={})
    assert [pipeline.namespace for pipeline in kfp_server.pipelines.values()] == ["team-a"]
    assert [experiment.namespace for experiment in kfp_server.experiments.values()] == ["team-a"]


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("host:8888", "endpoint: 'host:8888' is not allowed; give http://HOST:PORT"),
        ("ftp://host", "give http://HOST:PORT"),
        ("http://me:secret@host", "no name and password in the address, please; set LOCKSTEP_KFP_TOKEN"),
        ("http://host:port", "endpoint: 'http://host:port' is not allowed: "),
        ("http://me:secret@host:abc", "no name and password in the address, please; set LOCKSTEP_KFP_TOKEN"),
        ("http://host/?token=secret", r"nothing with \? or # in the address, please; a token goes into LOCKSTEP_KFP"),
        ("http://host/#secret", r"nothing with \? or # in the address, please"),
        ("http://ho st", "give http://HOST:PORT"),
    ],
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str, message: str) -> None:
    """Before anything is imported."""
    with pytest.raises(ValueError, match=message) as caught:
        Server(endpoint=endpoint)
    assert "secret" not in str(caught.value)


def test_a_run_is_waited_for(kfp_server: KfpServer, connect: Any, package: Package) -> None:
    """Every change is told once; a server that is away for a moment is waited for."""
    connection = connect()
    version = submission.upload(connection, package, None)
    run = submission.start(connection, package, version, name=None, experiment="e", arguments={})
    kfp_server.states = [
        {"state": "PENDING"},
        {"state": "RUNNING", "tasks": {"examplegen": "RUNNING"}},
        {"state": "RUNNING", "tasks": {"examplegen": "RUNNING"}},
        {"state": "RUNNING", "tasks": {"examplegen": "SUCCEEDED", "trainer": "RUNNING"}},
        {"state": "SUCCEEDED", "tasks": {"examplegen": "SUCCEEDED", "trainer": "SUCCEEDED"}},
    ]
    kfp_server.faults = [Fault("GET .*/runs/", 502, times=2), Fault("GET .*/runs/", 0)]
    lines: list[str] = []
    submission.wait(connection, run, lines.append, pause=lambda seconds: None)
    assert lines == [
        "run: pending",
        "examplegen: running",
        "run: running",
        "examplegen: succeeded",
        "trainer: running",
        "trainer: succeeded",
        "run: succeeded",
    ]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"state": "FAILED", "tasks": {"trainer": "FAILED"}},
            r"the run failed: trainer failed \(exit code 1\); see http",
        ),
        ({"state": "FAILED", "error": "no quota"}, "the run failed: no quota; see"),
        ({"state": "CANCELED"}, "the run canceled: no reason is given; see"),
    ],
)
def test_a_run_that_fails_fails_the_waiting(
    kfp_server: KfpServer, connect: Any, package: Package, state: dict[str, Any], message: str
) -> None:
    """With the tasks that did, and where to look."""
    connection = connect()
    version = submission.upload(connection, package, None)
    run = submission.start(connection, package, version, name=None, experiment="e", arguments={})
    kfp_server.states = [state]
    with pytest.raises(StepFailed, match=message):
        submission.wait(connection, run, lambda line: None, pause=lambda seconds: None)


def test_a_run_without_a_state_is_given_up(kfp_server: KfpServer, connect: Any, package: Package) -> None:
    """After ten minutes of it, and with a line before; one that has a state in between is waited for."""
    connection = connect()
    version = submission.upload(connection, package, None)
    run = submission.start(connection, package, version, name=None, experiment="e", arguments={})
    kfp_server.states = [{"state": "RUNNING"}]
    kfp_server.faults = [
        Fault("GET .*/runs/", 200, "{}", times=9),
        Fault("GET .*/runs/", 200, '{"state": "PENDING"}'),
        Fault("GET .*/runs/", 200, '{"state": "RUNTIME_STATE_UNSPECIFIED"}', times=99),
    ]
    lines: list[str] = []
    pauses_s: list[float] = []
    with pytest.raises(StepFailed, match=r"named no state of the run for 10 minutes; the run may go on: see http"):
        submission.wait(connection, run, lines.append, poll_s=60, pause=pauses_s.append)
    told = "run: the server names no state of it; giving up after 10 minutes of that"
    assert lines == [told, "run: pending", told]
    assert len(pauses_s) == 9 + 1 + 9


def _submit(*arguments: str) -> list[str]:
    return ["submit", str(_GOLDEN), *arguments]


def test_the_command_prints_links_and_exits_as_the_run_did(
    kfp_server: KfpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 where it succeeded, 1 where it failed."""
    flags = ("--endpoint", kfp_server.endpoint, "--run", "--wait", "--set", "train_steps=3", "--name", "trial")
    kfp_server.states = [{"state": "SUCCEEDED"}]
    assert main(_submit(*flags)) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [
        f"version: {kfp_server.endpoint}/#/pipelines/details/pipeline-0/version/version-0",
        f"run:     {kfp_server.endpoint}/#/runs/details/run-0",
        "  run: succeeded",
        "done",
    ]
    kfp_server.states = [{"state": "FAILED", "tasks": {"trainer": "FAILED"}}]
    assert main(_submit("--endpoint", kfp_server.endpoint, "--run", "--wait")) == 1
    assert "lockstep: the run failed: trainer failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--endpoint: required; give the address of Kubeflow Pipelines' API, or set KF_PIPELINES_ENDPOINT"),
        (("--endpoint", "host"), "--endpoint: 'host' is not allowed; give http://HOST:PORT"),
        (("--endpoint", "http://h", "--wait"), "--wait: needs --run"),
        (("--endpoint", "http://h", "--set", "a=b"), "--set: needs --run"),
        (("--endpoint", "http://h", "--experiment", "e"), "--experiment: needs --run"),
        (("--endpoint", "http://h", "--run", "--set", "a=b"), "--set a: the package has no such parameter"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is sent."""
    assert main(_submit(*arguments)) == 2
    assert message in capsys.readouterr().err


def test_a_package_that_kubeflow_would_refuse_is_not_sent(
    kfp_server: KfpServer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the findings of the validator."""
    path = tmp_path / "package.yaml"
    path.write_text(_GOLDEN.read_text().replace("schemaVersion: '2.1.0'", "schemaVersion: '2.0.0'"))
    assert main(["submit", str(path), "--endpoint", kfp_server.endpoint]) == 2
    assert "schemaVersion" in capsys.readouterr().err
    assert kfp_server.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("route", "left"),
    [
        ("GET .*/runs/run-0", "the run goes on: {}/#/runs/details/run-0"),
        ("POST .*/runs", "the version is there, a run of it may be: look at {}/#/runs"),
        ("POST .*/upload", "a new version may be there: look at {}/#/pipelines"),
    ],
)
def test_an_interrupted_command_says_what_is_left(
    kfp_server: KfpServer, tmp_path: pathlib.Path, number: signal.Signals, route: str, left: str
) -> None:
    """Ctrl-C, or SIGTERM, ends the waiting, not the run; nothing stays on this machine."""
    kfp_server.states = [{"state": "RUNNING"}]
    kfp_server.faults = [Fault(route, 200, drip_s=1)]
    process = subprocess.Popen(
        Project.command(*_submit("--endpoint", kfp_server.endpoint, "--run", "--wait")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    deadline = time.monotonic() + 60
    while not kfp_server.count(route) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"lockstep: interrupted; {left.format(kfp_server.endpoint)}\n" == stderr
    assert list(tmp_path.glob("lockstep-submit-*")) == []
    assert kfp_server.count(r"POST .*:terminate") == 0
