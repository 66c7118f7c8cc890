"""The ``split_by`` block of ``data``."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitBy:
    """What decides to which of ``splits`` a row goes; one of ``columns``, ``time`` and ``paths``, or the whole row.

    Args:
      columns: Rows that agree in all of these columns, such as ``[customer_id]``, go to the same split. Rows with a
        value in none of them go by their other values.
      time: A column of times or numbers. Its first rows in time go to the first split, the next ones to the second, by
        the weights of ``splits``, or by ``until``.
      until: With ``time``: split -> the time at which it ends, which the next one begins with. All splits but the last
        have one, in order: a number, or a date or time as ISO 8601 has it, in quotes.
      paths: Split -> its files: a file, folder or glob within the folder ``data.path``. The weights of ``splits`` do
        not matter then.
    """

    columns: tuple[str, ...] = ()
    time: str = ""
    until: Mapping[str, str] = dataclasses.field(default_factory=dict)
    paths: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        given = [key for key in ("columns", "time", "paths") if getattr(self, key)]
        if len(given) > 1:
            raise ValueError(f"{given[1]}: not allowed beside {given[0]}; keep one of columns, time and paths")
        if self.until and not self.time:
            raise ValueError("until: needs time, the column of times")

    def check(self, splits: Mapping[str, int]) -> None:
        """Checks that the names of splits are those of ``splits``.

        Raises:
          ValueError: They are not.
        """
        names = list(splits)
        if self.until and list(self.until) != names[:-1]:
            raise ValueError(
                f"split_by.until: the splits {', '.join(self.until)} are not allowed; give a time for each of splits "
                f"but the last, in order: {', '.join(names[:-1])}"
            )
        if self.paths and set(self.paths) != set(names):
            raise ValueError(
                f"split_by.paths: the splits {', '.join(self.paths)} are not allowed; give a path for each of splits: "
                f"{', '.join(names)}"
            )
        for name, path in self.paths.items():
            if not path or path.startswith(("/", "..")) or "://" in path:
                raise ValueError(f"split_by.paths.{name}: {path!r} is not allowed; give a path within data.path")
