"""The loops that keep workloads running, and the one guarded way to change anything."""
