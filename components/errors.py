"""Errors that a user can cause, and can mend: their message is shown alone, without a traceback."""


class UserError(Exception):
    """Something that the user gave cannot be used; the message says what, where and what to do.

    The command line prints the message and exits with 2.
    """


class ConfigurationError(UserError, ValueError):
    """A value in the configuration, or on the command line, is not allowed."""


class DataError(UserError):
    """The input data are absent, empty or not what was declared; names file, line and column where known."""


class RowError(DataError):
    """One row cannot be used; ExampleGen can leave such rows out (``data.on_error: quarantine``)."""


class AnomaliesFound(Exception):
    """The data are not as the schema says, so nothing is trained on them.

    The command line prints the message and exits with 3.
    """


class StepFailed(Exception):
    """A step failed for a reason outside the user's configuration and data: a full disk, a port, dead workers.

    The command line prints the message and exits with 1.
    """
