"""What the tests of planning share."""

import pytest


@pytest.fixture(scope="session")
def overridden():
    """`overridden(config, {a/b/c: value, …})`: the configuration with these keys set; names may hold dots."""

    def made(config: dict, keys: dict) -> dict:
        for path, value in keys.items():
            *parents, last = path.split("/")
            at = config
            for part in parents:
                at = at.setdefault(part, {})
            at[last] = value
        return config

    return made
