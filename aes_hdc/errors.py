"""The one exception that reaches the user as a single line."""


class UserError(Exception):
    """Something only the user can mend: a bad value, path or option.

    The message says what was given, the rule it breaks and the remedy, in one line of
    lower-case text without a full stop. The command line prints it to stderr and exits
    with status 1; from a notebook it is an ordinary exception.
    """
