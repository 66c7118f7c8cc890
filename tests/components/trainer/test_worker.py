"""Real worker processes, from a specification to an exported model."""

from pathlib import Path
from tests.components.trainer.conftest import MakeSpec
from tests.components.trainer.worker_processes import run_group


def test_one_worker_trains_and_exports(make_spec: MakeSpec) -> None:
    spec = make_spec()
    (worker,) = run_group(spec)
    print(worker.log[-6000:])
    for e in worker.events: print(e)
    print(Path(spec.run_dir,"training.json").read_text())
    assert worker.code == 0
