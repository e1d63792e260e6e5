"""Telling: Events, metrics, logs, incidents, and the flight recorder."""
