"""Observe and prove: from what the API says to facts and evidence about nodes and workloads."""
