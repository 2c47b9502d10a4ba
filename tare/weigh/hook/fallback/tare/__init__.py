"""What a job may call where `tare weigh` runs it and Tare is not installed."""


def mark(name: str = "step") -> None:
    """Say that a step has ended; the hook puts what notes it in this place (sitecustomize.py)."""
