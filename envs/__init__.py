"""Execution environments under study: one module each (docs/add-an-environment.md)."""
