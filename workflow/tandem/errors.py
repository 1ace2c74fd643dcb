"""The one exception for a user's mistake."""


class UserError(Exception):
    """Something the user can mend: one line that names the file or key, what was found and what is allowed.

    The command line prints it without a traceback and exits with status 1.
    """


class Unavailable(UserError):
    """What a dataset does not have, such as a split: a mistake only where something that needs it is wanted."""
