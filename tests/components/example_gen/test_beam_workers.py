"""The same work on a Beam runner's workers."""

from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from lockstep.components.errors import DataError
from lockstep.components.example_gen import csv_text
from lockstep.components.example_gen import ingest as ingest_module
from lockstep.components.example_gen.beam_workers import BeamWorkers, workers_of
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.example_gen.process_pool import ProcessPool, ThisProcess, Workers


def _pipeline() -> beam.Pipeline:
    options = PipelineOptions(["--direct_num_workers=2", "--direct_running_mode=multi_threading"])
    return beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner", options)


@pytest.mark.parametrize(
    ("arguments", "processes"),
    [
        (["--runner=DirectRunner", "--direct_num_workers=3"], 3),
        (["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner", "--direct_num_workers=1"], 1),
        (["--direct_num_workers=2", "--direct_running_mode=multi_processing"], 2),
        (["--runner=FlinkRunner"], None),
    ],
)
def test_a_runner_of_this_machine_means_a_pool(arguments: list[str], processes: int | None) -> None:
    """Any other one does the work itself."""
    workers = workers_of(arguments, _pipeline)
    assert isinstance(workers, BeamWorkers if processes is None else ProcessPool)
    if isinstance(workers, ProcessPool):
        assert workers.num_processes == processes


def test_a_beam_runner_gives_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over files and byte ranges, by two workers."""
    monkeypatch.setattr(ingest_module, "_SMALL_INPUT_BYTES", 0)
    monkeypatch.setattr(csv_text, "UNIT_BYTES", 4000)
    monkeypatch.setattr(csv_text, "_PIECE_BYTES", 1000)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("id,t\n" + "".join(f"{i},text {i}\n" for i in range(1000)))
    files = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    contents = []
    workers: Workers
    for number, workers in enumerate((ThisProcess(), BeamWorkers(_pipeline))):
        folder = tmp_path / f"out-{number}"
        ingest(files, DataOptions(path=str(tmp_path)), folder, Requirements(), workers=workers)
        contents.append({str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()})
    assert contents[0] == contents[1]


def test_a_fault_in_the_data_comes_back_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not wrapped by Beam, and nothing is left behind."""
    monkeypatch.setattr(ingest_module, "_SMALL_INPUT_BYTES", 0)
    (tmp_path / "a.csv").write_text("id,t\n1,x\n2\n")
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"a\.csv:3: 1 cells"):
        ingest(
            [str(tmp_path / "a.csv")],
            DataOptions(path=str(tmp_path)),
            out,
            Requirements(),
            workers=BeamWorkers(_pipeline),
        )
    assert list(out.iterdir()) == []
