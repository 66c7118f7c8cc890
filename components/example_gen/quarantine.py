"""Rows that cannot be used, kept beside the examples: ``quarantine/rows.jsonl`` in the artifact's folder.

One JSON object a line: ``place`` (file and line, row or byte), ``path``, ``position``, ``reason``, and the row as it is
in the file: ``row`` if it is UTF-8, else ``row_base64``; neither where it cannot be read.
"""

import base64
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from lockstep.components.errors import DataError
from lockstep.components.example_gen.source import Rejected

QUARANTINE_NAME = "quarantine/rows.jsonl"


def rejected_line(rejected: Rejected, place: str) -> bytes:
    """Returns a row that cannot be used as a line of the file."""
    document: dict[str, object] = {
        "place": place,
        "path": rejected.path,
        "position": rejected.position,
        "reason": rejected.reason,
    }
    if rejected.raw:
        try:
            document["row"] = rejected.raw.decode()
        except UnicodeDecodeError:
            document["row_base64"] = base64.b64encode(rejected.raw).decode()
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def write_quarantine(parts: Iterable[Path], folder: Path) -> None:
    """Joins the parts that exist, in order, to the file of an artifact; makes none where no part exists."""
    found = [part for part in parts if part.exists()]
    if not found:
        return
    target = folder / QUARANTINE_NAME
    target.parent.mkdir()
    with target.open("xb") as whole:
        for part in found:
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole)


def check_bad_rows(num_bad: int, num_rows: int, max_bad_rows: float | None, first: Path | None) -> None:
    """Checks that no more rows than allowed cannot be used.

    Args:
      num_bad: Rows that cannot be used.
      num_rows: All rows.
      max_bad_rows: A number of rows from 1, or a share below 1; None allows any number.
      first: A file with lines of ``rejected_line``; the first is named.

    Raises:
      DataError: They are more.
    """
    if max_bad_rows is None or not num_bad:
        return
    allowed = max_bad_rows * num_rows if max_bad_rows < 1 else max_bad_rows
    if num_bad <= allowed:
        return
    example = ""
    if first is not None:
        with first.open("rb") as file:
            document = json.loads(file.readline())
        example = f"; the first: {document['place']}: {document['reason']}"
    share = f"{num_bad:,} of {num_rows:,} rows cannot be used"
    raise DataError(f"{share}, and data.max_bad_rows: {max_bad_rows:g} allows {int(allowed):,}{example}")
