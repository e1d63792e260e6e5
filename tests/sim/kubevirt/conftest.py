"""The scenarios are not test modules by name, but their asserts should explain themselves too."""

import pytest

for module in ("rig", "scenarios", "timeline"):
    pytest.register_assert_rewrite(f"tests.sim.kubevirt.{module}")
