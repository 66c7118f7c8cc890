"""What KFP keeps in ML Metadata and its cache's table: artifacts with ids, executions with fingerprints; in SQLite."""

import contextlib
import dataclasses
import json
import pathlib
import sqlite3
from collections.abc import Mapping
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS artifact (id INTEGER PRIMARY KEY AUTOINCREMENT, uri TEXT NOT NULL, metadata TEXT NOT NULL,
  num_files INTEGER);
CREATE TABLE IF NOT EXISTS execution (id INTEGER PRIMARY KEY AUTOINCREMENT, pipeline TEXT NOT NULL, run TEXT NOT NULL,
  task TEXT NOT NULL, fingerprint TEXT, parameters TEXT NOT NULL, artifacts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS execution_fingerprint ON execution (pipeline, fingerprint);
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """An artifact as ML Metadata holds it.

    Args:
      id: Never given twice under one root, since ids are in KFP's cache keys.
      uri: Where it is.
      metadata: As a later step gets it.
      num_files: Objects that were uploaded for it; None where there was nothing to upload.
    """

    id: int
    uri: str
    metadata: Mapping[str, Any]
    num_files: int | None

    def to_runtime_artifact(self) -> dict[str, Any]:
        """Returns KFP's RuntimeArtifact: the type is empty, as KFP passes it to a later step."""
        return {
            "name": str(self.id),
            "type": {"instanceSchema": ""},
            "uri": self.uri,
            "metadata": dict(self.metadata),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a task left: parameters' values, and artifacts by name."""

    parameters: Mapping[str, Any]
    artifacts: Mapping[str, Artifact]


class Records:
    """Artifacts and executions under one root. Each write is whole or not at all, whatever ends the process.

    Args:
      path: The SQLite file; made where missing.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        with self._connection() as connection:
            connection.executescript(_SCHEMA)

    def add_artifact(self, *, uri: str, metadata: Mapping[str, Any], num_files: int | None) -> Artifact:
        """Records an artifact under a new id."""
        with self._connection() as connection, connection:
            cursor = connection.execute(
                "INSERT INTO artifact (uri, metadata, num_files) VALUES (?, ?, ?)",
                (uri, json.dumps(dict(metadata)), num_files),
            )
        assert cursor.lastrowid is not None
        return Artifact(id=cursor.lastrowid, uri=uri, metadata=metadata, num_files=num_files)

    def add_execution(
        self, outputs: Outputs, *, pipeline: str, run: str, task: str, fingerprint: str | None = None
    ) -> None:
        """Records a task that succeeded; with a fingerprint it can be found again."""
        ids = {name: artifact.id for name, artifact in outputs.artifacts.items()}
        with self._connection() as connection, connection:
            connection.execute(
                "INSERT INTO execution (pipeline, run, task, fingerprint, parameters, artifacts)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (pipeline, run, task, fingerprint, json.dumps(dict(outputs.parameters)), json.dumps(ids)),
            )

    def find(self, *, pipeline: str, fingerprint: str) -> tuple[str, Outputs] | None:
        """Returns the newest execution of a fingerprint, and the run that it was of; None where there is none."""
        with self._connection() as connection:
            row = connection.execute(
                "SELECT run, parameters, artifacts FROM execution WHERE pipeline = ? AND fingerprint = ?"
                " ORDER BY id DESC LIMIT 1",
                (pipeline, fingerprint),
            ).fetchone()
            if row is None:
                return None
            run, parameters, ids = row
            artifacts = {name: self._artifact(connection, id_) for name, id_ in json.loads(ids).items()}
        return run, Outputs(parameters=json.loads(parameters), artifacts=artifacts)

    @staticmethod
    def _artifact(connection: sqlite3.Connection, id_: int) -> Artifact:
        uri, metadata, num_files = connection.execute(
            "SELECT uri, metadata, num_files FROM artifact WHERE id = ?", (id_,)
        ).fetchone()
        return Artifact(id=id_, uri=uri, metadata=json.loads(metadata), num_files=num_files)

    def _connection(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(self._path))
