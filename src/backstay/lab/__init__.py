"""Disasters on demand: the demo, and what looks at the ground truth meanwhile."""
