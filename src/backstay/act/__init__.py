"""Raw verbs on the cluster. Nobody but ``control/guard.py`` may use them."""
