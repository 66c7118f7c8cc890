"""Words for true and false, as 0 and 1."""

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.example_gen.arrow_casts import trimmed

TRUE_WORDS = ("true", "t", "yes", "y", "on", "1")
FALSE_WORDS = ("false", "f", "no", "n", "off", "0")
_ALL_WORDS = pa.array(TRUE_WORDS + FALSE_WORDS)
_WRITTEN_BY_PROGRAMS = pa.array(["true", "false"])


def booleans_of_text(values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Returns the words as int64 0 and 1, null where there is none, and each row whose value is another word.

    Args:
      values: Strings; neither case nor blanks around matter, and blanks alone are a missing value.
    """
    words = pc.ascii_lower(trimmed(values))
    known = pc.is_in(words, value_set=_ALL_WORDS)
    numbers = pc.if_else(
        known, pc.is_in(words, value_set=pa.array(TRUE_WORDS)).cast(pa.int64()), pa.scalar(None, pa.int64())
    )
    wrong = pc.and_(pc.is_valid(words), pc.invert(known)).to_numpy(zero_copy_only=False)
    allowed = "/".join(TRUE_WORDS) + " or " + "/".join(FALSE_WORDS)
    return numbers, {int(row): f"{values[int(row)].as_py()!r} is not a bool ({allowed})" for row in wrong.nonzero()[0]}


def are_booleans(values: pa.Array) -> bool:
    """Tells whether all strings are ``true`` or ``false``, in any case: what programs write, and people seldom."""
    words = pc.ascii_lower(trimmed(values))
    return bool(pc.all(pc.is_in(words.drop_null(), value_set=_WRITTEN_BY_PROGRAMS)).as_py())
