"""How dates and times are written: ISO 8601, or a format of the user's, as regular expressions over named parts."""

import dataclasses
import re
from collections.abc import Mapping

UNIX_FORMATS: Mapping[str, int] = {"unix": 1, "unix_ms": 10**3, "unix_us": 10**6, "unix_ns": 10**9}
"""Formats of numbers instead of text -> how many of their units make a second."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FULL_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_ZONE = r"(?P<zone>[zZ]|[+-]\d\d(?::?\d\d)?)"
_FRACTION = r"(?:[.,](?P<fraction>\d{1,9})\d*)?"
_DIRECTIVES: Mapping[str, str] = {
    "Y": r"(?P<year>\d{4})",
    "y": r"(?P<short_year>\d\d)",
    "m": r"(?P<month>\d\d?)",
    "b": rf"(?P<month_name>{'|'.join(_MONTHS)})",
    "B": rf"(?P<month_name>{'|'.join(_FULL_MONTHS)})",
    "d": r"(?P<day>\d\d?)",
    "H": r"(?P<hour>\d\d?)",
    "I": r"(?P<half_day_hour>\d\d?)",
    "p": r"(?P<half>am|pm)",
    "M": r"(?P<minute>\d\d?)",
    "S": r"(?P<second>\d\d?)",
    "f": r"(?P<fraction>\d{1,9})",
    "z": _ZONE,
    "%": "%",
}
_WHOLE_DATES = (("year", "month", "day"), ("short_year", "month", "day"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeOptions:
    """How text and numbers of columns declared ``timestamp`` or ``date`` are read.

    Args:
      zone: The zone of times that are written without one: a name of the IANA database, such as ``Europe/Berlin``.
      formats: Column -> format: ``%Y-%m-%d %H:%M`` and its like, or ``unix``, ``unix_ms``, ``unix_us``, ``unix_ns``;
        a column that is not listed is written as ISO 8601 has it.
    """

    zone: str = "UTC"
    formats: Mapping[str, str] = dataclasses.field(default_factory=dict)


ISO_TIMES = (
    (
        rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)(?:(?:[tT]| +)(?P<hour>\d\d):(?P<minute>\d\d)"
        rf"(?::(?P<second>\d\d){_FRACTION})? ?{_ZONE}?)?"
    ),
    (
        rf"(?P<year>\d{{4}})(?P<month>\d\d)(?P<day>\d\d)(?:[tT](?P<hour>\d\d)(?P<minute>\d\d)"
        rf"(?:(?P<second>\d\d){_FRACTION})?{_ZONE}?)?"
    ),
)
"""The patterns of ISO 8601's dates and times: with separators, and without."""

ISO_DATES = (r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)", r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)")


def pattern_of_format(text: str) -> str:
    """Returns the regular expression of a format as ``datetime.strptime`` has them; of letters, case does not matter.

    Raises:
      ValueError: A directive is unknown or stands twice, or the format gives no whole date.
    """
    pattern, used = "", set[str]()
    expanded = text.replace("%T", "%H:%M:%S").replace("%F", "%Y-%m-%d")
    for found in re.finditer(r"%(.?)|([^%]+)", expanded, re.DOTALL):
        directive, literal = found.groups()
        if literal is not None:
            pattern += re.sub(r"(\\?\s)+", r"\\s+", re.escape(literal))
            continue
        if directive not in _DIRECTIVES:
            known = ", ".join(f"%{letter}" for letter in _DIRECTIVES)
            raise ValueError(f"%{directive} in {text!r} is not known (known: {known}, %T, %F)")
        part = _DIRECTIVES[directive]
        names = set(re.findall(r"\?P<(\w+)>", part))
        if names & used:
            raise ValueError(f"%{directive} in {text!r} stands twice, or beside another name of the month")
        used |= names
        pattern += part
    normal = {"month" if name == "month_name" else name for name in used}
    if not any(set(date) <= normal for date in _WHOLE_DATES):
        raise ValueError(f"{text!r} gives no whole date; it needs a year, a month and a day, such as %Y-%m-%d")
    if {"hour", "half_day_hour"} <= used or ("half_day_hour" in used) != ("half" in used):
        raise ValueError(f"{text!r}: %I goes with %p, and %H alone")
    return f"(?i:{pattern})"


def month_of_name(name: str) -> int:
    """Returns 1 to 12 of an English month's name or its first three letters."""
    return _MONTHS.index(name[:3].lower()) + 1
