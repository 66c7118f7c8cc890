"""What all tests share."""

import dataclasses
import gc
import logging
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from lockstep.components import object_store

# A commit passes or fails, not a day: every run draws the same examples. To look for faults among new ones:
# `pytest --hypothesis-profile=default`. No example has a time limit: the machine may have other work.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# A shell starts background jobs with SIGINT ignored, and so would be what the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def frozen_heap() -> None:
    """Takes what earlier files loaded out of the garbage collector's sight.

    With TensorFlow and TFX that is a million objects. pyarrow looks through all objects in sight at every text of CSV
    that it parses on Python 3.10, and so does each collection.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def heap_at_the_end() -> Iterator[None]:
    """Gives everything back to the collector, for the interpreter to end as it does without ``frozen_heap``."""
    yield
    gc.unfreeze()


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A new bucket of a real S3 server.

    Args:
      name: Of the bucket.
      environ: What a process needs to reach it: endpoint and credentials.
      client: boto3's client, to put things there and to look, past everything of ours.
    """

    name: str
    environ: dict[str, str]
    client: Any

    def uri(self, key: str = "", scheme: str = "s3") -> str:
        """Returns the URI of a key."""
        return f"{scheme}://{self.name}/{key}"

    def put(self, key: str, content: str | bytes) -> str:
        """Writes an object; returns its URI."""
        self.client.put_object(Bucket=self.name, Key=key, Body=content)
        return self.uri(key)

    def stored(self, prefix: str = "") -> list[str]:
        """Returns the names of all objects."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]


@pytest.fixture(scope="session")
def s3_environ() -> Iterator[dict[str, str]]:
    """A server on loopback that speaks S3's protocol, as the environment of a process that uses it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line a request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }
    server.stop()


@pytest.fixture
def bucket(s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A new bucket, and a process that is configured for its server."""
    import boto3

    for name, value in s3_environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    client = boto3.client("s3")
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    object_store.configure(s3_environ)
    yield Bucket(name, dict(s3_environ), client)
    object_store.configure({})
    client.close()
