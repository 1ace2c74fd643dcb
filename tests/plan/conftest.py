"""What the tests of planning share."""

import pytest
from tiny_project import put


@pytest.fixture(scope="session")
def overridden():
    """`overridden(config, {a/b/c: value, …})`: the configuration with these keys set; names may hold dots."""

    def override(config: dict, keys: dict) -> dict:
        for path, value in keys.items():
            put(config, path.split("/"), value)
        return config

    return override
