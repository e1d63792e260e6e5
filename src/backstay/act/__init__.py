"""Raw verbs on the cluster. Nobody but ``control/guard.py`` may use them, and
``control/machines.py``, which asks KubeVirt for what it does itself."""
