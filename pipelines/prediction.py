"""Predictions for raw rows through a model's serving signature, as CSV."""

import contextlib
import csv
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import TextIO

from lockstep.components.errors import ConfigurationError
from lockstep.components.example_gen.rows import read_examples
from lockstep.components.serving import find_model, predict, read_contract


def write_predictions(model_dir: pathlib.Path, data: str, output: TextIO | pathlib.Path) -> int:
    """Writes a line for every raw row, in the order of the rows, below the header ``prediction``.

    Args:
      model_dir: A push folder, whose served version is taken, one version, or a SavedModel.
      data: A CSV or Parquet file, folder or glob; columns that the model does not read, as the label, may be there.
      output: A text stream, or a file that appears whole or not at all.

    Returns:
      The number of rows.

    Raises:
      ConfigurationError: there is no such model, or it does not say what it reads.
      DataError: there are no rows, or a cell does not hold its column's type.
    """
    found = find_model(model_dir)
    contract = read_contract(found)
    if contract is None:
        raise ConfigurationError(f"{found}: does not say which columns it reads; give a model that Lockstep trained")
    batches = predict(found, read_examples(data, contract.raw_features))
    with contextlib.nullcontext(output) if not isinstance(output, pathlib.Path) else _whole(output) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["prediction"])
        rows = 0
        for batch in batches:
            # Nine digits tell any two float32 apart.
            writer.writerows([format(float(value), ".9g")] for value in batch)
            rows += len(batch)
    return rows


@contextlib.contextmanager
def _whole(path: pathlib.Path) -> Iterator[TextIO]:
    """Opens a file for writing that takes its name only once it is complete."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as e:
        raise ConfigurationError(f"--output {path}: {e.strerror}; give a file in a folder that can be written") from e
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            yield stream
        pathlib.Path(temporary).replace(path)
    finally:
        pathlib.Path(temporary).unlink(missing_ok=True)
