"""Predictions for raw rows through a model's serving signature, as CSV."""

import contextlib
import csv
import dataclasses
import json
import os
import pathlib
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TextIO, cast

from lockstep.components.errors import ConfigurationError, DataError, RowError, StepFailed
from lockstep.components.example_gen.options import ColumnType, CsvOptions, DataOptions, Format
from lockstep.components.example_gen.rows import read_examples
from lockstep.components.serving import ServingContract, model_at_hand, predict, read_contract

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# ExampleGen's reader speaks of the keys of a pipeline; the types, which it may advise to declare, are the model's here.
_FLAGS = (
    (re.compile(r"mend the cell, add it to data\.options\.null_tokens, or declare data\.types\..*", re.DOTALL),
     "mend the cell, or give it as --null-token"),
    (re.compile(r"; declare data\.types\..*: string, or int if all its values are whole", re.DOTALL), ""),
    (re.compile(r"; declare data\.types\..*", re.DOTALL), "; mend it"),
    (re.compile(r"give header: false, or leave it out"), "give --no-header, or leave them out"),
    (re.compile(r"give data\.options\.(delimiter|encoding)"), r"give --\1"),
    (re.compile(r"give data\.format"), "give --format"),
    (re.compile(r"^data\.path"), "--data"),
)  # fmt: skip
_KEYS = {"path": "data", "column_names": "column-name", "null_tokens": "null-token"}


def row_options(
    data: str,
    *,
    format: Format | None = None,  # noqa: A002 - the flag's name
    delimiter: str | None = None,
    encoding: str | None = None,
    null_tokens: Sequence[str] | None = None,
    quote: str | None = None,
    header: bool | None = None,
    column_names: Sequence[str] | None = None,
    on_error: Literal["fail", "quarantine"] = "fail",
) -> DataOptions:
    """Returns where raw rows are and how they are read, as the flags of ``lockstep predict`` say.

    Args:
      data: A file, folder or glob.
      format: None picks by the file's name.
      delimiter: None takes the default, as for all flags.
      encoding: A Python codec.
      null_tokens: Replace the default ones.
      quote: One character, or empty.
      header: False where the first line is a row.
      column_names: Of files without header.
      on_error: ``quarantine``: rows that cannot be read are left out, each with a warning.

    Raises:
      ConfigurationError: A value is not allowed; named by its flag.
    """
    given = {
        "delimiter": delimiter,
        "encoding": encoding,
        "null_tokens": None if null_tokens is None else tuple(null_tokens),
        "quote": quote,
        "header": header,
        "column_names": None if column_names is None else tuple(column_names),
    }
    try:
        options = CsvOptions(**{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]
        return DataOptions(path=data, format=format, options=options, on_error=on_error)
    except ValueError as e:
        key, _, problem = str(e).partition(":")
        raise ConfigurationError(f"--{_KEYS.get(key, key)}:{in_terms_of_flags(problem)}") from e


def in_terms_of_flags(message: str) -> str:
    """Returns a message of ExampleGen's reader with flags of ``lockstep predict`` for keys of a pipeline."""
    for pattern, flag in _FLAGS:
        message = pattern.sub(flag, message)
    return message


def write_predictions(model_dir: pathlib.Path | str, data: DataOptions, output: TextIO | pathlib.Path) -> int:
    """Writes a line for every raw row, in the order of the rows, below the header ``prediction``.

    Of boxes it is a JSON list, the surest box first: ``{"box": [x_min, y_min, x_max, y_max], "class": ..., "score":
    ...}``. Of a multiclass label that is the most probable class; the probability of each follows, below ``p(CLASS)``.

    Args:
      model_dir: A push folder, whose served version is taken, one version, or a SavedModel; or its URI.
      data: Raw rows (``row_options``); columns that the model does not read, as the label, may be there. Times, truths
        and lists are read as in training: the model says how.
      output: A text stream, or a file. A regular file appears whole or not at all, where a link leads to, and keeps
        its mode; a device or pipe is written to as it is. Nothing is written before there are predictions.

    Returns:
      The number of rows.

    Raises:
      ConfigurationError: there is no such model, it does not say what it reads, or there can be no such file.
      DataError: there are no rows, or a cell does not hold its column's type.
      StepFailed: the file cannot be written to its end, or an object store does not answer.
    """
    with model_at_hand(str(model_dir)) as found:
        contract = read_contract(found)
        if contract is None:
            raise ConfigurationError(
                f"{model_dir}: does not say which columns it reads; give a model that Lockstep trained"
            )
        try:
            rows = _as_trained(data, contract)
        except ValueError as e:
            raise ConfigurationError(f"{model_dir}: cannot be asked about raw rows by this version ({e})") from e
        answers = predict(found, read_examples(rows, contract.raw_features))
        return _write(answers, contract.classes, output, of_boxes=contract.label_kind == "boxes")


def _as_trained(data: DataOptions, contract: ServingContract) -> DataOptions:
    """Returns how rows are read whose times, truths and lists are written as in training."""
    written = contract.raw_columns
    return dataclasses.replace(
        data,
        types={name: cast(ColumnType, kind) for name, kind in written.types.items()},
        time_zone=written.time_zone,
        time_formats=written.time_formats,
        list_separator=written.list_separator,
    )


def _write(
    batches: Iterator["npt.NDArray[np.float32]"],
    classes: Sequence[str],
    output: TextIO | pathlib.Path,
    *,
    of_boxes: bool,
) -> int:
    opened = _opened(output) if isinstance(output, pathlib.Path) else contextlib.nullcontext(output)
    rows = 0
    try:
        with opened as stream:
            writer = csv.writer(stream, lineterminator="\n")
            for batch in batches:
                if not rows:
                    writer.writerow(["prediction", *(f"p({name})" for name in classes if not of_boxes)])
                if of_boxes:
                    writer.writerows([_boxes_as_json(row, classes)] for row in batch)
                elif classes:
                    named = ([classes[row.argmax()], *map(_written, row)] for row in batch)
                    writer.writerows(named)
                else:
                    writer.writerows([_written(value)] for value in batch)
                rows += len(batch)
            stream.flush()
    except RowError as e:
        raise DataError(f"{in_terms_of_flags(str(e))}; or give --skip-bad-rows") from e
    except DataError as e:
        raise DataError(in_terms_of_flags(str(e))) from e
    return rows


def _boxes_as_json(found: "npt.NDArray[np.float32]", classes: Sequence[str]) -> str:
    """Returns the boxes of one image, [n, 6], the surest first: a list of objects with box, class and score."""
    return json.dumps(
        [
            {
                "box": [float(_written(side)) for side in row[:4]],
                "class": classes[int(row[5])],
                "score": float(_written(row[4])),
            }
            for row in found
            if row[4] > 0
        ],
        ensure_ascii=False,
    )


def _written(value: "np.float32") -> str:
    return format(float(value), ".9g")  # nine digits tell any two float32 apart


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[TextIO]:
    try:
        status = path.stat()
    except FileNotFoundError:
        status = None
    except OSError as e:
        raise ConfigurationError(f"--output {path}: {e.strerror}; give another file") from e
    if status and stat.S_ISDIR(status.st_mode):
        raise ConfigurationError(f"--output {path}: is a folder; give a file")
    try:
        if status is None or stat.S_ISREG(status.st_mode):
            # Where links lead to, so that they stay.
            target = pathlib.Path(os.path.realpath(path))
            with _whole(target, status and stat.S_IMODE(status.st_mode)) as stream:
                yield stream
        else:
            # A device or pipe: a file in its place would take it away from everybody.
            with path.open("w", encoding="utf-8") as stream:
                yield stream
    except BrokenPipeError:
        raise
    except OSError as e:
        raise StepFailed(f"--output {path}: {e.strerror}") from e


@contextlib.contextmanager
def _whole(path: pathlib.Path, mode: int | None) -> Iterator[TextIO]:
    """Opens a file for writing that takes its name only once it is complete; mode None is that of any new file."""
    temporary = path.with_name(f".predictions-{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as e:
        raise ConfigurationError(f"--output {path}: {e.strerror}; give a file in a folder that can be written") from e
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            if mode is not None:
                os.fchmod(descriptor, mode)
            yield stream
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
