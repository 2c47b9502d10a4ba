"""Processes that ended, made up: what a test lets `run` answer."""

from tare.core.process import Finished


def finished(stdout="", returncode=0, stderr="", argv=("program",)):
    return Finished(
        argv=argv,
        returncode=returncode,
        stdout=stdout,
        stderr=stderr,
        started_ns=0,
        ended_ns=1,
        user_s=0.0,
        system_s=0.0,
        timed_out=False,
    )
