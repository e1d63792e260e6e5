"""Kubernetes wire types, projected to the fields that Backstay uses, and the rows made of them.

Wire types mirror the server's JSON and tolerate its nulls. Rows are flat, frozen and small:
they are what caches keep, 100,000 at a time. A row is for reading and deciding; an object that
is written back is built from a live one, because a projection has dropped most of its fields.
"""
