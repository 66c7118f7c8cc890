"""Where Kubeflow Pipelines is and who asks; a credential is looked at before anything is sent, and never shown."""

import dataclasses
import json
import pathlib
import urllib.parse
from collections.abc import Iterator, Mapping

from lockstep.components.errors import ConfigurationError

TOKEN_VARIABLE = "LOCKSTEP_KFP_TOKEN"  # noqa: S105 - a name
COOKIE_VARIABLE = "LOCKSTEP_KFP_COOKIE"
TOKEN_FILE_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"  # noqa: S105 - kfp's own name
ENDPOINT_VARIABLE = "KF_PIPELINES_ENDPOINT"

_MIN_COOKIE_PART = 6  # shorter ones, such as a language, are no secret, and stand in many a word


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
      ValueError: The endpoint is no such address, or the token or the cookie cannot be sent in a header.
    """

    endpoint: str
    namespace: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    cookie: str | None = dataclasses.field(default=None, repr=False)
    token_file: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        _check_endpoint(self.endpoint)
        if self.token:
            _check_token(TOKEN_VARIABLE, self.token)
        if self.cookie:
            _check_header(COOKIE_VARIABLE, self.cookie)

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str], *, endpoint: str | None, namespace: str | None, ca_file: str | None
    ) -> "Server":
        """Returns the server that flags and the environment name.

        Raises:
          ConfigurationError: Neither names an endpoint, or it is no address; a credential cannot be sent.
        """
        endpoint = endpoint or environ.get(ENDPOINT_VARIABLE)
        if not endpoint:
            raise ConfigurationError(
                f"--endpoint: required; give the address of Kubeflow Pipelines' API, or set {ENDPOINT_VARIABLE}"
            )
        token = environ.get(TOKEN_VARIABLE, "").strip() or None
        try:
            return cls(
                endpoint=endpoint.strip().rstrip("/"),
                namespace=namespace,
                token=token,
                cookie=environ.get(COOKIE_VARIABLE, "").strip() or None,
                token_file=None if token else environ.get(TOKEN_FILE_VARIABLE),
                ca_file=ca_file,
            )
        except ValueError as e:
            flag = "--" if str(e).startswith("endpoint:") else ""
            raise ConfigurationError(f"{flag}{e}") from e

    @property
    def has_credentials(self) -> bool:
        """True where some are given."""
        return bool(self.token or self.cookie or self.token_file)

    def read_token_file(self) -> str:
        """Returns the token that the file holds now.

        Raises:
          ConfigurationError: It cannot be read, or holds no token.
        """
        file = self.token_file or ""
        begin = f"{TOKEN_FILE_VARIABLE} {file}"
        try:
            token = pathlib.Path(file).read_text(encoding="utf-8").strip()
        except OSError as e:
            raise ConfigurationError(f"{begin}: {e.strerror or 'cannot be read'}") from e
        except ValueError as e:
            raise ConfigurationError(f"{begin}: is no text; give a file with a token") from e
        if not token:
            raise ConfigurationError(f"{begin}: is empty; give a file with a token")
        try:
            _check_token(begin, token)
        except ValueError as e:
            raise ConfigurationError(str(e)) from e
        return token

    def secrets(self) -> Iterator[str]:
        """Yields what must not be shown of what was given; without the file's content."""
        if self.token:
            yield self.token
        if self.cookie:
            yield self.cookie
            for part in self.cookie.split(";"):
                value = part.partition("=")[2].strip().strip('"')
                if len(value) >= _MIN_COOKIE_PART:
                    yield value


def redacted(text: str, secrets: Iterator[str]) -> str:
    """Returns a text without any of some secrets, as they are or as JSON, Python or an address spell them."""
    spellings = {
        spelling
        for secret in secrets
        for spelling in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], urllib.parse.quote(secret, safe=""))
        if spelling
    }
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, "[...]")
    return text


def _check_endpoint(endpoint: str) -> None:
    # What stands before an @ or after a ? may be a password: not quoted, nor kept, since links are made of it.
    if "@" in endpoint:
        raise ValueError(f"endpoint: no name and password in the address, please; set {TOKEN_VARIABLE}")
    if "?" in endpoint or "#" in endpoint:
        raise ValueError(f"endpoint: nothing with ? or # in the address, please; a token goes into {TOKEN_VARIABLE}")
    try:
        parts = urllib.parse.urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError as e:
        raise ValueError(f"endpoint: {endpoint!r} is not allowed: {e}") from e
    if parts.scheme not in ("http", "https") or not host or any(c.isspace() or not c.isprintable() for c in endpoint):
        raise ValueError(f"endpoint: {endpoint!r} is not allowed; give http://HOST:PORT, or https://HOST/pipeline")


def _check_token(name: str, token: str) -> None:
    if any(character in token for character in " \t\r\n"):
        raise ValueError(f"{name}: there is a space or a line break in the token; give the token alone")
    _check_header(name, token)


def _check_header(name: str, value: str) -> None:
    for place, character in enumerate(value):
        code = ord(character)
        if code < 32 or 127 <= code < 160 or code > 255:
            kind = "is a control character" if code < 160 else "cannot be sent in a header"
            # The value is a secret.
            raise ValueError(f"{name}: character {place + 1} of {len(value)} {kind}; copy the value once more")
