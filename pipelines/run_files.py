"""The names of everything under a pipeline's root folder."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class RootFiles:
    """What a pipeline keeps from run to run.

    Args:
      root: The folder; belongs to one pipeline.
    """

    root: pathlib.Path

    @property
    def metadata_path(self) -> pathlib.Path:
        """ML Metadata's SQLite file."""
        return self.root / "metadata.sqlite"

    @property
    def artifacts_dir(self) -> pathlib.Path:
        """TFX's pipeline root."""
        return self.root / "artifacts"

    @property
    def training_dir(self) -> pathlib.Path:
        """Checkpoints of unfinished trainings."""
        return self.root / "training"

    @property
    def runs_dir(self) -> pathlib.Path:
        """One folder a run."""
        return self.root / "runs"

    @property
    def lock_path(self) -> pathlib.Path:
        """Locked by the run that goes on; holds its process id."""
        return self.root / "lock"

    @property
    def steps_lock_path(self) -> pathlib.Path:
        """Locked by the process that runs the steps, which outlives a killed run by seconds; holds its id."""
        return self.root / "steps.lock"


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """What one run leaves behind.

    Args:
      run_dir: The run's own folder.
    """

    run_dir: pathlib.Path

    @property
    def request_path(self) -> pathlib.Path:
        """The configuration as run, paths absolute."""
        return self.run_dir / "request.json"

    @property
    def events_path(self) -> pathlib.Path:
        """Every event of the run, a JSON line each."""
        return self.run_dir / "events.jsonl"

    @property
    def report_path(self) -> pathlib.Path:
        """The run on one page."""
        return self.run_dir / "report.html"

    @property
    def log_path(self) -> pathlib.Path:
        """What TFX, TensorFlow, Beam and user code wrote."""
        return self.run_dir / "run.log"
