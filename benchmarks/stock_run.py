"""The process that runs the stock pipeline: ``python -m benchmarks.stock_run CONFIG_JSON_FILE ROOT``.

Writes the same events as a run of Lockstep to ``ROOT/events.jsonl``, and says on standard output, as that does, when
all is loaded and when a step is done.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep.pipelines import run_events
from lockstep.pipelines.config import PipelineConfig


def main(config_path: Path, root: Path) -> None:
    """Runs the pipeline of a configuration by TFX's LocalDagRunner; what a component raises goes through."""
    from tfx.orchestration.local import local_dag_runner

    from benchmarks import stock_taxi

    config = PipelineConfig.from_json(config_path.read_text(encoding="utf-8"))
    pipeline = stock_taxi.build_pipeline(config, root)
    sys.stdout.write("loaded\n")
    sys.stdout.flush()
    with (root / "events.jsonl").open("w", encoding="utf-8") as events, _timed_steps(events):
        local_dag_runner.LocalDagRunner().run(pipeline)
        events.write(run_events.to_line(run_events.RunFinished(exit_code=0, message="done")))


@contextmanager
def _timed_steps(events: Any) -> Iterator[None]:
    """Writes an event for every node that LocalDagRunner launches, which has no hooks of its own.

    The seconds are those of TFX's launcher: driver, executor and publisher, as in Lockstep's own events.
    """
    from tfx.orchestration.portable import launcher

    launch = launcher.Launcher.launch

    def timed(self: Any) -> Any:
        begin = time.monotonic()
        result = launch(self)
        step = self._pipeline_node.node_info.id
        event = run_events.StepChanged(step=step, state="done", seconds=time.monotonic() - begin)
        events.write(run_events.to_line(event))
        events.flush()
        sys.stdout.write(f"  {step}  done\n")
        sys.stdout.flush()
        return result

    launcher.Launcher.launch = timed
    try:
        yield
    finally:
        launcher.Launcher.launch = launch


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
