"""Fixtures that several unit tests share."""

from data_server import data_cache, server

__all__ = ["data_cache", "server"]
