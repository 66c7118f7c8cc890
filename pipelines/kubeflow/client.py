"""A Kubeflow Pipelines API server, by ``kfp.Client``: bounded in time, and every failure told in one line.

The client's own methods are the same in kfp 2.5 and 2.16, where those of the generated API below it are not.
"""

import contextlib
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
from lockstep.pipelines.kubeflow.server import COOKIE_VARIABLE, TOKEN_VARIABLE, Server, redacted
from lockstep.pipelines.kubeflow.transport import Late, Misshapen, Moved, NoJson, Transport

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

_LIMIT_S = 180.0  # for one request
_PAUSES_S = (1.0, 2.0, 4.0)
_TRANSIENT = (429, 500, 502, 503, 504)
_EQUALS = 1
_MAX_SAID = 300
_MAX_NO_JSON = 40


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
      limit_s: Seconds that one request may take, from connecting to the answer's last byte.
    """

    def __init__(self, server: Server, pause: Callable[[float], None] = time.sleep, limit_s: float = _LIMIT_S) -> None:
        self.server = server
        self._pause = pause
        self._transport = Transport(limit_s)
        self._file_tokens: set[str] = set()  # each one that was sent: the file's changes
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
        return f"{self.server.endpoint}/#/{redacted(place, self._secrets())}"

    def quoted(self, text: str) -> str:
        """Returns words of the server's for a message: in one line, not too long, and without any credential."""
        # Twice, since a break of a line may have been within one.
        text = redacted(_one_line(redacted(text, self._secrets())), self._secrets())
        return text if len(text) <= _MAX_SAID else text[:_MAX_SAID] + "..."

    def _secrets(self) -> Iterator[str]:
        yield from self.server.secrets()
        yield from self._file_tokens

    def _read_token_file(self) -> str:
        token = self.server.read_token_file()
        self._file_tokens.add(token)
        return token

    def _connected(self) -> Any:
        pauses_s = iter((*_PAUSES_S, None))
        while self._client is None:
            try:
                with self._told("reach the API"):
                    self._client = _make_client(self.server, self._transport, self._read_token_file)
            except Unanswered as e:  # noqa: PERF203 - a request takes far longer
                self._again_or_raise(e, next(pauses_s))
        return self._client

    def _call(self, what: str, method: str, arguments: Mapping[str, Any]) -> Any:
        client = self._connected()
        with self._told(what), contextlib.redirect_stdout(io.StringIO()):  # kfp prints links
            return getattr(client, method)(**arguments)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        import kfp_server_api
        import urllib3

        try:
            yield
        except (ConfigurationError, StepFailed, Unanswered, Conflict):
            raise
        except NoJson as e:
            raise self._no_json(str(e)) from e
        except Moved as e:
            raise self._moved(e.location) from e
        except Misshapen as e:
            raise self._misunderstood(what) from e
        except Late as e:
            raise Unanswered(
                StepFailed(
                    f"could not {what}: {self.server.endpoint} gave no whole answer within"
                    f" {self._transport.limit_s:g} s; look at the API server's log (deployment"
                    " ml-pipeline), or at a proxy before it"
                )
            ) from e
        except kfp_server_api.ApiException as e:
            # After a good answer it is one of its values that cannot be read.
            raise (self._misunderstood(what) if self._transport.answered else self._refused(what, e)) from e
        except urllib3.exceptions.HTTPError as e:
            raise self._unreachable(e) from e
        except OSError as e:
            file = self.server.ca_file or self.server.token_file or self.server.endpoint
            raise ConfigurationError(f"{e.filename or file}: {e.strerror or self.quoted(str(e))}") from e
        except (AttributeError, LookupError, TypeError, ValueError) as e:
            if self._transport.answered:
                raise self._misunderstood(what) from e
            if not isinstance(e, ValueError):
                raise
            # Without its words: they may be a header's value.
            raise StepFailed(
                f"could not {what}: kfp made no request of it for {self.server.endpoint} ({type(e).__name__})"
            ) from e

    def _misunderstood(self, what: str) -> Exception:
        return StepFailed(
            f"could not {what}: {self.server.endpoint} answered what kfp does not understand; is this Kubeflow"
            " Pipelines 2's API?"
        )

    def _no_json(self, text: str) -> Exception:
        said = text if text == "a web page" else repr(self.quoted(text)[:_MAX_NO_JSON])
        return ConfigurationError(
            f"{self.server.endpoint}: answered {said}, not as Kubeflow Pipelines' API does; {self._login_remedy()}"
        )

    def _moved(self, location: str) -> Exception:
        endpoint = self.server.endpoint
        try:
            parts = urllib.parse.urlsplit(urllib.parse.urljoin(f"{endpoint}/", location))
            origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        except ValueError:
            return ConfigurationError(f"{endpoint}: sends elsewhere, to no address; {self._login_remedy()}")
        own = urllib.parse.urlsplit(endpoint)
        if origin.lower() == f"{own.scheme}://{own.netloc}".lower():
            return ConfigurationError(f"{endpoint}: sends on to {self.quoted(parts.path)}; {self._login_remedy()}")
        # What is asked for stands below the endpoint.
        path = parts.path.partition("/apis/")[0] if "/apis/" in parts.path else ""
        return ConfigurationError(
            f"{endpoint}: moved to {self.quoted(origin + path)}; give that as --endpoint, or, if that is where one logs"
            f" in, set {TOKEN_VARIABLE} or {COOKIE_VARIABLE}"
        )

    def _refused(self, what: str, error: Any) -> Exception:
        endpoint, status, said = self.server.endpoint, error.status, self.quoted(_said(error))
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
        reason = self.quoted(str(getattr(error, "reason", None) or error))
        if "SSL" in reason or "CERTIFICATE" in reason.upper():
            return ConfigurationError(
                f"{endpoint}: no secure connection: {reason}; give the certificate of the one who signed it by"
                " --ca-cert FILE, or http:// where the server speaks no TLS"
            )
        return Unanswered(
            StepFailed(
                f"{endpoint}: no answer: {reason}; look whether the address is right, and whether it can be"
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


def _make_client(server: Server, transport: Transport, read_token: Callable[[], str]) -> Any:
    import kfp
    from kfp.client import set_volume_credentials

    class _Client(kfp.Client):
        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            """Asks once; kfp's own asks five times, each with a traceback in the log."""
            api = self._healthz_api
            transport.bind(api.api_client.rest_client)
            # By its path, since the generated method has another name in each release.
            return api.api_client.call_api(
                "/apis/v2beta1/healthz",
                "GET",
                response_type="V2beta1GetHealthzResponse",
                auth_settings=["Bearer"],
                _return_http_data_only=True,
            )

    class _TokenFile(set_volume_credentials.ServiceAccountTokenVolumeCredentials):
        def _get_token(self) -> str:
            return read_token()

    if server.ca_file and not pathlib.Path(server.ca_file).is_file():
        raise ConfigurationError(f"--ca-cert {server.ca_file}: no such file")
    credentials = None
    if server.token_file:
        credentials = _TokenFile(path=server.token_file)
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


def _said(error: Any) -> str:
    """Returns the server's own words in an error's body."""
    body = error.body or ""
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        document = json.loads(body)
        return str(document.get("message") or document.get("error_message") or document.get("error") or "")
    return "" if "<" in body else body


def _one_line(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return re.sub(r"\s+", " ", printable).strip()
