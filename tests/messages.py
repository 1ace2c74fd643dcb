"""Messages that tests of many parts look for. Their words stand here, once for each kind of message."""


def unknown_key(path: str, near: str = "", allowed: str = "") -> str:
    """A key that a model does not have; `near` is the one that is suggested, `allowed` the beginning of the list."""
    hint = f"; did you mean {near}?" if near else f"; allowed: {allowed}" if allowed else ""
    return f"{path} is not a known key{hint}"


def unknown_documents(count: int) -> str:
    """Judgements of documents that the corpus does not have, kept with a warning."""
    return f"{count} judgements name documents that the corpus lacks and are kept: no run can find them"


def other_dataset(role: str, actual: str, expected: str = "") -> str:
    """A pattern: the input of a role belongs to another dataset than the others."""
    return f"{role} .* was made from the dataset {actual}" + (
        f"; expected {expected}" if expected else ""
    )
