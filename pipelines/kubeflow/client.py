"""A Kubeflow Pipelines API server, by ``kfp.Client``: bounded in time, and every failure told in one line.

The client's own methods are the same in kfp 2.5 and 2.16, where those of the generated API below it are not.
"""

import contextlib
import dataclasses
import io
import json
import logging
import pathlib
import re
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from lockstep.components.errors import ConfigurationError, StepFailed

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "LOCKSTEP_KFP_TOKEN"  # noqa: S105 - a name
COOKIE_VARIABLE = "LOCKSTEP_KFP_COOKIE"
TOKEN_FILE_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"  # noqa: S105 - kfp's own name
ENDPOINT_VARIABLE = "KF_PIPELINES_ENDPOINT"

_TIMEOUT_S = (10.0, 120.0)  # to connect, to answer: a server behind a slow link reads 32 MB in that
_PAUSES_S = (1.0, 2.0, 4.0)
_TRANSIENT = (429, 500, 502, 503, 504)
_EQUALS = 1
_MAX_SAID = 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """Where Kubeflow Pipelines is, and who asks.

    Args:
      endpoint: ``http://`` or ``https://``, the address below which ``/apis/v2beta1`` is.
      namespace: Of the user, where the server has several; None is the one of kfp's own settings.
      token: A bearer token; kept out of messages and representations.
      cookie: A session's cookie, ``name=value``, as Dex gives it; likewise.
      token_file: A file with a token that Kubernetes renews; None where a token is given, or none is needed.
      ca_file: Certificates that the server's is signed by, in a file; None takes the usual ones.

    Raises:
      ValueError: The endpoint is no such address.
    """

    endpoint: str
    namespace: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    cookie: str | None = dataclasses.field(default=None, repr=False)
    token_file: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.endpoint)
            credentials, host = parts.username or parts.password, parts.hostname
            _ = parts.port
        except ValueError as e:
            raise ValueError(f"endpoint: {self.endpoint!r} is not allowed: {e}") from e
        if credentials:
            raise ValueError(f"endpoint: no name and password in the address, please; set {TOKEN_VARIABLE}")
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError(
                f"endpoint: {self.endpoint!r} is not allowed; give http://HOST:PORT, or https://HOST/pipeline"
            )

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str], *, endpoint: str | None, namespace: str | None, ca_file: str | None
    ) -> "Server":
        """Returns the server that flags and the environment name.

        Raises:
          ConfigurationError: Neither names an endpoint, or it is no address.
        """
        endpoint = endpoint or environ.get(ENDPOINT_VARIABLE)
        if not endpoint:
            raise ConfigurationError(
                f"--endpoint: required; give the address of Kubeflow Pipelines' API, or set {ENDPOINT_VARIABLE}"
            )
        token = environ.get(TOKEN_VARIABLE)
        try:
            return cls(
                endpoint=endpoint.rstrip("/"),
                namespace=namespace,
                token=token,
                cookie=environ.get(COOKIE_VARIABLE),
                token_file=None if token else environ.get(TOKEN_FILE_VARIABLE),
                ca_file=ca_file,
            )
        except ValueError as e:
            raise ConfigurationError(f"--{e}") from e

    @property
    def has_credentials(self) -> bool:
        """True where some are given."""
        return bool(self.token or self.cookie or self.token_file)


class Unanswered(Exception):
    """A request failed so that it may have been carried out or not; ``told`` is the error to raise in the end."""

    def __init__(self, told: Exception) -> None:
        super().__init__(str(told))
        self.told = told


class Conflict(Exception):
    """The server has something of that name."""


class Connection:
    """A connection to a server; made lazily by the first call, which takes some seconds to import kfp.

    Args:
      server: Where.
      pause: Waits for some seconds.
    """

    def __init__(self, server: Server, pause: Callable[[float], None] = time.sleep) -> None:
        self.server = server
        self._pause = pause
        self._client: Any = None

    def read(self, what: str, method: str, /, **arguments: Any) -> Any:
        """Calls a method of ``kfp.Client`` that changes nothing; tries again where the server is busy or away.

        Args:
          what: What is done, for a message, such as "look for the pipeline".
          method: The method's name.
          arguments: Its arguments.

        Raises:
          ConfigurationError: The server refuses it, or is none.
          StepFailed: It does not answer.
        """
        for pause_s in (*_PAUSES_S, None):
            try:
                return self._call(what, method, arguments)
            except Unanswered as e:  # noqa: PERF203 - a request takes far longer
                self._again_or_raise(e, pause_s)
        raise AssertionError("the last attempt returns or raises")

    def create(self, what: str, method: str, find: Callable[[], _T | None], /, **arguments: Any) -> _T | Any:
        """Calls a method that makes something: after a failure it looks whether it was made before it tries again.

        Args:
          what: As of ``read``.
          method: The method's name.
          find: Returns what the call would have made, or None.
          arguments: The method's arguments.

        Raises:
          Conflict: There is something of that name, and not by this call.
          ConfigurationError: The server refuses it, or is none.
          StepFailed: It does not answer.
        """
        failed = False
        for pause_s in (*_PAUSES_S, None):
            try:
                return self._call(what, method, arguments)
            except (Unanswered, Conflict) as e:  # noqa: PERF203 - a request takes far longer
                made = find() if failed or isinstance(e, Unanswered) else None
                if made is not None:
                    return made
                if isinstance(e, Conflict):
                    raise
                failed = True
                self._again_or_raise(e, pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _again_or_raise(self, error: Unanswered, pause_s: float | None) -> None:
        if pause_s is None:
            raise error.told from error
        _logger.warning("%s; trying again in %g s", error.told, pause_s)
        self._pause(pause_s)

    @property
    def namespace(self) -> str | None:
        """The user's namespace; None where the server has only one."""
        return self._connected().get_user_namespace() or None

    def link(self, place: str) -> str:
        """Returns the address of a page of the user interface."""
        return f"{self.server.endpoint}/#/{place}"

    def _connected(self) -> Any:
        pauses_s = iter((*_PAUSES_S, None))
        while self._client is None:
            try:
                with self._told("reach the API"):
                    self._client = _make_client(self.server)
            except Unanswered as e:  # noqa: PERF203 - a request takes far longer
                self._again_or_raise(e, next(pauses_s))
        return self._client

    def _call(self, what: str, method: str, arguments: Mapping[str, Any]) -> Any:
        client = self._connected()
        api_client = client._run_api.api_client
        with self._told(what):
            with contextlib.redirect_stdout(io.StringIO()):  # kfp prints links
                answer = getattr(client, method)(**arguments)
            _check_json(api_client.last_response)
            return answer

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        import kfp_server_api
        import urllib3

        try:
            yield
        except (ConfigurationError, StepFailed, Unanswered, Conflict):
            raise
        except _NoJson as e:
            raise ConfigurationError(
                f"{self.server.endpoint}: answered {e}, not as Kubeflow Pipelines' API does; {self._login_remedy()}"
            ) from e
        except kfp_server_api.ApiException as e:
            raise self._refused(what, e) from e
        except urllib3.exceptions.HTTPError as e:
            raise self._unreachable(e) from e
        except AttributeError as e:
            # kfp looks for the body of an answer that never came.
            if not isinstance(e.__context__, kfp_server_api.ApiException):
                raise
            raise self._unreachable(e.__context__) from e
        except OSError as e:
            file = self.server.ca_file or self.server.token_file or self.server.endpoint
            raise ConfigurationError(f"{e.filename or file}: {e.strerror or e}") from e
        except ValueError as e:
            raise StepFailed(
                f"could not {what}: {self.server.endpoint} answered what kfp does not understand: {e}"
            ) from e

    def _refused(self, what: str, error: Any) -> Exception:
        endpoint, status, said = self.server.endpoint, error.status, _said(error)
        if not status:
            return self._unreachable(error)
        begin = f"could not {what}: {endpoint} answered {status}"
        end = f": {said}" if said else ""
        if status in (401, 403):
            given = (
                "the token or cookie that is set is not taken"
                if self.server.has_credentials
                else "it wants to know who asks"
            )
            return ConfigurationError(
                f"{begin}{end}; {given}: set {TOKEN_VARIABLE} to a token, or {COOKIE_VARIABLE} to a session's cookie,"
                " of someone who may do this"
            )
        if status == 409:
            return Conflict(f"{begin}{end}")
        if status == 413:
            return ConfigurationError(
                f"{begin}{end}; the package is larger than the server, or a proxy before it, takes: raise that limit"
                " (nginx: proxy-body-size)"
            )
        if status in _TRANSIENT:
            return Unanswered(
                StepFailed(f"{begin}{end}; look at the API server's log (deployment ml-pipeline), then run again")
            )
        if status == 404:
            return ConfigurationError(
                f"{begin}{end}; give the address of a Kubeflow Pipelines 2 API, such as https://HOST/pipeline, or that"
                " of a forwarded port"
            )
        remedy = "; give yours by --namespace" if "namespace" in said.lower() and not self.server.namespace else ""
        return ConfigurationError(f"{begin}{end}{remedy}")

    def _unreachable(self, error: Any) -> Exception:
        endpoint = self.server.endpoint
        reason = str(getattr(error, "reason", None) or error)
        if "SSL" in reason or "CERTIFICATE" in reason.upper():
            return ConfigurationError(
                f"{endpoint}: no secure connection: {_short(reason)}; give the certificate of the one who signed it by"
                " --ca-cert FILE, or http:// where the server speaks no TLS"
            )
        return Unanswered(
            StepFailed(
                f"{endpoint}: no answer: {_short(reason)}; look whether the address is right, and whether it can be"
                " reached from here (kubectl port-forward -n kubeflow svc/ml-pipeline 8888)"
            )
        )

    def _login_remedy(self) -> str:
        if self.server.has_credentials:
            return "the token or cookie may have run out, or the address be that of a page: the API's ends in /pipeline"
        return f"it may be a login page: set {TOKEN_VARIABLE} or {COOKIE_VARIABLE}; or the address is not the API's"


def by_name(name: str) -> str:
    """Returns the server's filter for things of that very name."""
    return json.dumps({"predicates": [{"operation": _EQUALS, "key": "display_name", "stringValue": name}]})


class _NoJson(Exception):
    """Says what was answered instead."""


def _make_client(server: Server) -> Any:
    import kfp
    import urllib3
    from kfp.client import set_volume_credentials

    class _Client(kfp.Client):  # type: ignore[misc]
        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            """Asks once; kfp's own asks five times, each with a traceback in the log."""
            api = self._healthz_api
            _bound(api.api_client.rest_client)
            # By its path, since the generated method has another name in each release.
            answer = api.api_client.call_api(
                "/apis/v2beta1/healthz",
                "GET",
                response_type="V2beta1GetHealthzResponse",
                auth_settings=["Bearer"],
                _return_http_data_only=True,
            )
            _check_json(api.api_client.last_response)
            return answer

    def _bound(rest: Any) -> None:
        """Gives every request a time limit, and leaves trying again to ``Connection``."""
        if "request" not in vars(rest):
            request = rest.request
            rest.request = lambda *args, **kwargs: request(*args, **{**kwargs, "_request_timeout": _TIMEOUT_S})
            rest.pool_manager.connection_pool_kw["retries"] = urllib3.Retry(total=0)

    for flag, file in (("--ca-cert", server.ca_file), (TOKEN_FILE_VARIABLE, server.token_file)):
        if file and not pathlib.Path(file).is_file():
            raise ConfigurationError(f"{flag} {file}: no such file")
    credentials = None
    if server.token_file:
        credentials = set_volume_credentials.ServiceAccountTokenVolumeCredentials(path=server.token_file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # that it speaks to KFP 2 alone
        client = _Client(
            host=server.endpoint,
            existing_token=server.token,
            cookies=server.cookie,
            credentials=credentials,
            ssl_ca_cert=server.ca_file,
            **({"namespace": server.namespace} if server.namespace else {}),
        )
    client.get_kfp_healthz()
    return client


def _check_json(response: Any) -> None:
    """Raises where an answer is no JSON object: kfp would make an object of it in which everything is None."""
    text = response.data if isinstance(response.data, str) else bytes(response.data).decode(errors="replace")
    with contextlib.suppress(ValueError):
        if isinstance(json.loads(text), dict):
            return
    kind = "a web page" if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower() else repr(text[:40])
    raise _NoJson(kind)


def _said(error: Any) -> str:
    """Returns the server's own words in an error's body."""
    body = error.body or ""
    with contextlib.suppress(ValueError, AttributeError):
        document = json.loads(body)
        return _short(str(document.get("message") or document.get("error_message") or document.get("error") or ""))
    return "" if "<" in body else _short(body)


def _short(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= _MAX_SAID else text[:_MAX_SAID] + "..."
