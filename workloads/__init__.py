"""Workloads: one module each, in Python 3.6 syntax (docs/add-a-workload.md)."""
