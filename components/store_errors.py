"""What object stores' clients raise, in the words of who has to mend it; each client has errors of its own."""

import errno
import shutil
from pathlib import Path

from lockstep.components.errors import ConfigurationError, DataError, StepFailed

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_AWS_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (on Kubeflow by kubeflow.store)"
_GOOGLE_CREDENTIALS = "set GOOGLE_APPLICATION_CREDENTIALS, or give the pod's service account access"
# By name, so that no client is imported for another one's error.
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "ProfileNotFound"}
_NO_ANSWER = {
    *("HTTPClientError", "EndpointConnectionError", "ConnectionError", "ConnectTimeoutError", "TimeoutError"),
    *("FSTimeoutError", "ClientConnectionError", "TransportError", "ProxyError", "InvalidProxiesConfigError"),
}
_FAULTS = {
    "OSError",
    "BotoCoreError",
    "ClientError",
    "HttpError",
    "RequestException",
    "GoogleAuthError",
    "ClientPayloadError",
}


def explained(error: Exception, uri: str, endpoint: str, scratch: Path | None) -> Exception | None:
    """Returns the error to raise instead; None where it is not one of a store.

    Args:
      error: What a client raised.
      uri: What it was about.
      endpoint: Where the store is, for a message.
      scratch: The local folder that was written to, if any.
    """
    google = uri.startswith("gs://")
    credentials = _GOOGLE_CREDENTIALS if google else _AWS_CREDENTIALS
    cause = _last_cause(error)
    kinds = {kind.__name__ for each in (error, cause) for kind in type(each).__mro__}
    code = getattr(cause, "response", {}).get("Error", {}).get("Code", "") or str(getattr(cause, "code", ""))
    said = str(cause).strip() or type(cause).__name__
    if isinstance(error, OSError) and error.errno in _NO_SPACE and not code:
        room = f"; {shutil.disk_usage(scratch).free >> 20} MB are free in {scratch}" if scratch else ""
        return StepFailed(f"{uri}: no space left for it here{room}; make room, or set TMPDIR to a larger disk")
    if kinds & _NO_CREDENTIALS:
        return ConfigurationError(f"{uri}: no credentials for the object store: {said}; {credentials}")
    if code == "NoSuchBucket":
        return ConfigurationError(f"{uri}: no such bucket at {endpoint}; make it, or mend the URI")
    if "PermissionError" in kinds or code in ("401", "403") or said.startswith("Forbidden"):
        return ConfigurationError(
            f"{uri}: the object store denies access: {said}; {credentials}, of someone who may use this bucket"
        )
    if kinds & _NO_ANSWER:
        elsewhere = "" if google else ", or set AWS_ENDPOINT_URL to another one"
        return StepFailed(
            f"{uri}: no answer from the object store at {endpoint}: {said}; look whether it runs and can be"
            f" reached from here{elsewhere}, then run again"
        )
    if "FileNotFoundError" in kinds:
        return DataError(f"{uri}: no such object")
    if kinds & _FAULTS:
        return StepFailed(f"{uri}: the object store at {endpoint} failed: {said}; run again")
    return None


def _last_cause(error: BaseException) -> BaseException:
    """Returns what the store's client said first: fsspec raises Python's own errors from it."""
    while error.__cause__ is not None and type(error.__cause__).__module__.split(".")[0] in (
        "botocore",
        "aiohttp",
        "gcsfs",
    ):
        error = error.__cause__
    return error
