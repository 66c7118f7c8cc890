"""Requests of ``kfp_server_api``: each ends in time, none is sent on to elsewhere, and its answer can be read."""

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

_TIMEOUT_S = (10.0, 120.0)  # to connect, for the next bytes: a server behind a slow link reads 32 MB in that
_REDIRECTS = (301, 302, 303, 307, 308)
_LISTS = ("pipelines", "pipeline_versions", "experiments", "runs")
_TEXTS = ("pipeline_id", "pipeline_version_id", "experiment_id", "run_id", "display_name", "state")


class NoJson(Exception):
    """An answer is no JSON object; says what it is instead."""


class Misshapen(Exception):
    """An answer is JSON, and not the API's."""


class Moved(Exception):
    """The answer is to ask elsewhere, at ``location``."""

    def __init__(self, location: str) -> None:
        super().__init__("moved")
        self.location = location


class Late(Exception):
    """The whole answer did not come in time."""


class Transport:
    """What stands between ``kfp_server_api`` and the network.

    Args:
      limit_s: Seconds that one request may take, from connecting to the answer's last byte.

    Attributes:
      answered: Whether the last request has had an answer that looks like the API's.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.answered = False

    def bind(self, rest: Any) -> None:
        """Puts itself before the requests of a ``RESTClientObject``; once, however often it is called."""
        import kfp_server_api
        import urllib3

        if "request" in vars(rest):
            return
        pool_manager = rest.pool_manager
        send, urlopen = rest.request, pool_manager.urlopen

        def request(*args: Any, **kwargs: Any) -> Any:
            self.answered = False
            try:
                response = self._in_time(lambda: send(*args, **{**kwargs, "_request_timeout": _TIMEOUT_S}))
            except kfp_server_api.ApiException as e:
                # Its reader wants UTF-8, also where no body came.
                e.body = (e.body or b"").decode(errors="replace").encode()
                location = (e.headers or {}).get("Location") if e.status in _REDIRECTS else None
                if location:
                    raise Moved(location) from e
                raise
            _check(response.data)
            self.answered = True
            return response

        rest.request = request
        # Redirects would take a package to whatever address a server names.
        pool_manager.urlopen = lambda *args, **kwargs: urlopen(*args, **{**kwargs, "redirect": False})
        # Trying again is the connection's.
        pool_manager.connection_pool_kw["retries"] = urllib3.Retry(total=0)

    def _in_time(self, call: Callable[[], Any]) -> Any:
        """Calls in a thread: the library's own limits are for each byte. A call that is late is left to itself."""
        outcomes: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()

        def run() -> None:
            try:
                outcomes.put((call(), None))
            except BaseException as e:  # noqa: BLE001 - raised below
                outcomes.put((None, e))

        threading.Thread(target=run, name="lockstep-request", daemon=True).start()
        try:
            answer, error = outcomes.get(timeout=self.limit_s)
        except queue.Empty as e:
            raise Late from e
        if error is not None:
            raise error
        return answer


def _check(data: bytes) -> None:
    """Raises where an answer is not the API's: kfp would make an object of it in which everything is None."""
    text = data.decode(errors="replace")
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(text)
        if isinstance(document, dict):
            if not _is_shaped(document):
                raise Misshapen
            return
    raise NoJson("a web page" if any(tag in text[:1000].lower() for tag in ("<html", "<!doctype")) else text)


def _is_shaped(document: Mapping[str, Any]) -> bool:
    details = document.get("run_details")
    if not isinstance(details, dict | None):
        return False
    lists = [document.get(key) for key in _LISTS] + [(details or {}).get("task_details")]
    if not all(isinstance(items, list | None) for items in lists):
        return False
    objects = [document, *(item for items in lists for item in items or ())]
    return all(
        isinstance(item, dict) and all(isinstance(item.get(key), str | None) for key in _TEXTS) for item in objects
    )
