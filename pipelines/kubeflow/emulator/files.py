"""The names of everything under an emulator's root folder."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class EmulationFiles:
    """What is kept from run to run.

    Args:
      root: The folder; belongs to the emulations of one pipeline.
    """

    root: pathlib.Path

    @property
    def lock_path(self) -> pathlib.Path:
        """Locked by the run that goes on; holds its process id."""
        return self.root / "lock"

    @property
    def records_path(self) -> pathlib.Path:
        """What KFP has in ML Metadata and in its cache's table."""
        return self.root / "records.sqlite"

    @property
    def store_dir(self) -> pathlib.Path:
        """The object store, where it is a folder."""
        return self.root / "store"

    @property
    def secrets_dir(self) -> pathlib.Path:
        """Kubernetes secrets: a folder each, in it a file a key. The user's to fill."""
        return self.root / "secrets"

    @property
    def config_maps_dir(self) -> pathlib.Path:
        """Config maps, likewise."""
        return self.root / "configmaps"

    @property
    def claims_dir(self) -> pathlib.Path:
        """Volume claims: a folder each."""
        return self.root / "claims"

    @property
    def containers_dir(self) -> pathlib.Path:
        """File systems of the attempts that run, and of the last that failed."""
        return self.root / "containers"

    @property
    def runs_dir(self) -> pathlib.Path:
        """One folder a run."""
        return self.root / "runs"


@dataclasses.dataclass(frozen=True)
class EmulationRunFiles:
    """What one run leaves behind.

    Args:
      run_dir: The run's own folder.
    """

    run_dir: pathlib.Path

    @property
    def events_path(self) -> pathlib.Path:
        """Every event of the run, a JSON line each."""
        return self.run_dir / "events.jsonl"

    @property
    def log_path(self) -> pathlib.Path:
        """What the emulator itself did."""
        return self.run_dir / "emulator.log"

    def attempt_log_path(self, task: str, attempt: int) -> pathlib.Path:
        """What one attempt of a task wrote."""
        return self.run_dir / f"{task}-{attempt}.log"
