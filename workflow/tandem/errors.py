"""The one exception for a user's mistake."""


class UserError(Exception):
    """Something the user can mend: one line that names the file or key, what was found and what is allowed.

    The command line prints it without a traceback and exits with status 1.
    """


class MissingSplit(UserError):
    """A dataset lacks a split that something needs: a mistake only where that something is wanted."""
