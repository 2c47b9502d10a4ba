"""The part of the harness that runs inside an environment: standard library and framework, Python 3.6 syntax."""
