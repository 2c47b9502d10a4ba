"""What carries a launch: the order of what it is shown, and whose clock it counts."""

from pathlib import Path

import pytest

from tare.launch import inside
from tare.launch.transport import TRANSPORTS, Cargo, same_clock, transport_of
from tare.model.environment import Bind


def test_folders_are_shown_before_the_launchs_own_and_what_lies_in_it_after():
    """What is bound later lies over what was bound before."""
    parts = [Cargo(source=Path("/code"), target=Path("/w")), Cargo(source=Path("/data"), target=Path("/w/data"))]
    own = (Bind(source=Path("/asked"), target=Path("/asked")),)
    found = TRANSPORTS["binds"].binds(Path("/w"), parts, [Path("/tool")], [Path("/scratch")], own)
    assert [(str(one.source), str(one.target), one.writable) for one in found] == [
        ("/asked", "/asked", False),
        ("/tool", "/tool", False),
        ("/scratch", "/scratch", True),
        ("/code", "/w", False),
        ("/w", "/w", True),
        ("/data", "/w/data", False),
    ]


def test_only_what_is_bound_shares_files_with_this_machine():
    assert {name: one.shares_files for name, one in TRANSPORTS.items()} == {"binds": True, "channel": False}
    assert {transport_of(type("One", (), {"transport": name})) for name in TRANSPORTS} == set(TRANSPORTS.values())


def test_a_clock_is_ours_by_kernel_and_time_namespace():
    namespace = Path("/proc/self/ns/time")
    ours = {
        "boot_id": inside.boot_id(),
        "time_namespace": str(namespace.readlink()) if namespace.is_symlink() else None,
    }
    assert same_clock(ours)
    assert not same_clock({**ours, "boot_id": "another"}) and not same_clock({**ours, "time_namespace": "another"})


def test_no_clock_is_ours_where_the_kernels_name_is_hidden(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert not same_clock({"boot_id": None, "time_namespace": str(Path("/proc/self/ns/time").readlink())})


@pytest.mark.parametrize(("text", "found"), [("5f2a\n", "5f2a"), (None, None)])
def test_the_kernels_name_is_told_or_hidden(tmp_path, monkeypatch, text, found):
    if text is not None:
        (tmp_path / "boot_id").write_text(text)
    monkeypatch.setattr(inside, "BOOT_ID", tmp_path / "boot_id")
    assert inside.boot_id() == found


def test_a_namespace_is_a_launchs_own_where_its_number_is_known_and_another():
    ours = {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
    assert inside.own_namespaces({**ours, "net": "net:[1]", "mnt": None, "pid": ours["pid"]}) == ["net"]
