"""The contracts are not test modules by name, but their asserts should explain themselves too."""

import pytest

for contract in ("transport", "serve", "files", "exec"):
    pytest.register_assert_rewrite(f"tests.seam.{contract}_contract")
