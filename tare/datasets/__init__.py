"""Data sets: fetched, verified by hash, prepared for workloads."""
