"""Readers of logs and traces that profilers write; read-only."""
