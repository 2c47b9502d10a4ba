"""Installs container runtimes and serves the private Docker daemon."""
