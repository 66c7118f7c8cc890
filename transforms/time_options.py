"""What can be made of a time, and how times and offsets are written in the configuration."""

import datetime as dt
import re
from collections.abc import Mapping

__all__ = ["NUM_VALUES_OF_PART", "YEAR", "parse_time", "parse_utc_offset"]

# Parts that come round again, each an index from 0 on.
NUM_VALUES_OF_PART: Mapping[str, int] = {
    "second": 60,
    "minute": 60,
    "hour": 24,
    "hour_of_week": 168,
    "weekday": 7,
    "day": 31,
    "day_of_year": 366,
    "month": 12,
    "quarter": 4,
}
# The part that does not come round: a number.
YEAR = "year"

_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>[01]\d|2[0-3]):(?P<minutes>[0-5]\d)")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def parse_utc_offset(text: str) -> int:
    """Returns the seconds that local time is ahead of UTC: 19800 for ``+05:30``; raises ValueError for other text."""
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not allowed; give +HH:MM or -HH:MM, such as +05:30")
    seconds = int(found["hours"]) * 3600 + int(found["minutes"]) * 60
    return -seconds if found["sign"] == "-" else seconds


def parse_time(value: int | str) -> int:
    """Returns the seconds since 1970 in UTC of a time or date in ISO 8601, in UTC where it says no other; or the value.

    Raises:
      ValueError: It is no such text, or has fractions of a second.
    """
    if isinstance(value, int):
        return value
    try:
        # Python 3.10 knows no Z.
        time = dt.datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", value))
    except ValueError as e:
        raise ValueError(
            f"{value!r} is not allowed; give a date or time such as 2020-01-31 or 2020-01-31T06:30:00+01:00"
        ) from e
    since = (time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)) - _EPOCH
    if since.microseconds:
        raise ValueError(f"{value!r} is not allowed; give whole seconds")
    return since.days * 86_400 + since.seconds
