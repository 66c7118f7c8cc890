"""The file in which a command tells the launcher about its outputs, read as strictly as KFP reads it."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any, NoReturn

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from lockstep.components.errors import StepFailed


def read_output_file(path: pathlib.Path) -> Mapping[str, Any]:
    """Returns KFP's ExecutorOutput in JSON's form; an empty one where there is no file, which is no error to KFP.

    Raises:
      StepFailed: The file is no JSON, or has a field that ExecutorOutput has not, or a value of another type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as e:
        raise StepFailed(f"failed to read output metadata file {path.name!r}: {e}") from e
    try:
        json.loads(text, parse_constant=_refuse)  # Python alone takes NaN and Infinity
        parsed = json_format.Parse(text, pipeline_spec_pb2.ExecutorOutput())
    except (ValueError, json_format.ParseError) as e:
        raise StepFailed(f"failed to unmarshall ExecutorOutput in file {path.name!r}: {e}") from e
    document: Mapping[str, Any] = json_format.MessageToDict(parsed)
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
