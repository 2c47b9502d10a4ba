"""Tare weighs the container: what an execution environment costs deep-learning training."""

__version__ = "0.1.0"
