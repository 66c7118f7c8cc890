"""What KFP keeps in ML Metadata and its cache's table: artifacts with ids, executions with fingerprints; in SQLite."""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.components.errors import StepFailed
from lockstep.pipelines.kubeflow.emulator.store import StoredFile

_SCHEMA = """
CREATE TABLE IF NOT EXISTS artifact (id INTEGER PRIMARY KEY AUTOINCREMENT, uri TEXT NOT NULL, metadata TEXT NOT NULL,
  files TEXT);
CREATE TABLE IF NOT EXISTS execution (id INTEGER PRIMARY KEY AUTOINCREMENT, pipeline TEXT NOT NULL, run TEXT NOT NULL,
  task TEXT NOT NULL, fingerprint TEXT, parameters TEXT NOT NULL, artifacts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS execution_fingerprint ON execution (pipeline, fingerprint);
"""

# Less than SQLite needs for a change.
_ROOM_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """An artifact as ML Metadata holds it.

    Args:
      id: Never given twice under one root, since ids are in KFP's cache keys.
      uri: Where it is.
      metadata: As a later step gets it.
      files: The objects that were uploaded for it, by their names below the URI; None where there was nothing.
    """

    id: int
    uri: str
    metadata: Mapping[str, Any]
    files: Mapping[str, StoredFile] | None

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

    Every method raises StepFailed where the file cannot be used: the disk is full, or it is damaged.

    Args:
      path: The SQLite file; made where missing.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        with self._connection() as connection:
            connection.executescript(_SCHEMA)
            columns = {row[1] for row in connection.execute("PRAGMA table_info(artifact)")}
            if "files" not in columns:  # written before artifacts were looked at: nothing of it can be trusted
                connection.executescript(
                    "ALTER TABLE artifact ADD COLUMN files TEXT; UPDATE execution SET fingerprint = NULL;"
                )

    def add_artifact(
        self, *, uri: str, metadata: Mapping[str, Any], files: Mapping[str, StoredFile] | None
    ) -> Artifact:
        """Records an artifact under a new id."""
        with self._connection() as connection, connection:
            cursor = connection.execute(
                "INSERT INTO artifact (uri, metadata, files) VALUES (?, ?, ?)",
                (uri, json.dumps(dict(metadata)), None if files is None else json.dumps(dict(files))),
            )
        assert cursor.lastrowid is not None
        return Artifact(id=cursor.lastrowid, uri=uri, metadata=metadata, files=files)

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
        row = connection.execute("SELECT uri, metadata, files FROM artifact WHERE id = ?", (id_,)).fetchone()
        if row is None:
            raise ValueError(f"no artifact {id_}")
        uri, metadata, files = row
        found = None if files is None else {key: StoredFile(*file) for key, file in json.loads(files).items()}
        return Artifact(id=id_, uri=uri, metadata=json.loads(metadata), files=found)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self._path)) as connection:
                yield connection
        except (sqlite3.Error, ValueError, TypeError) as e:
            raise StepFailed(self._explained(e)) from e

    def _explained(self, error: Exception) -> str:
        """Returns what a person reads, with the remedy: SQLite's own words for a full disk are several."""
        if "full" in str(error) or shutil.disk_usage(self._path.parent).free < _ROOM_BYTES:
            return f"{self._path}: no space left for it; make room, or give another --root"
        if isinstance(error, sqlite3.OperationalError):  # locked, read-only, not to be opened
            return f"{self._path}: cannot be used: {error}; mend that, or give another --root"
        return (
            f"{self._path}: is damaged: {error}; remove it, and nothing that was run before is taken from the cache, or"
            " give another --root"
        )
