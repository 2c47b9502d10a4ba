"""What a change of an environment needs is made, shown where it has to be, and gone afterwards."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tare.core.errors import UnavailableError
from tare.model.choices import read_choice
from tare.weigh.causes import Change
from tare.weigh.changes import apply, folder_of


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """`changed(change, first, prefixes)`: the choice, for as long as the stack of the test is."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    with contextlib.ExitStack() as stack:

        def changed(change, first="host", prefixes=("/opt/py", "/opt/py")):
            place = SimpleNamespace(choice=read_choice(first), adapter=None)
            python = None if prefixes is None else SimpleNamespace(prefixes=prefixes, executable="python")
            return apply(change, read_choice("docker=img"), place, python, tmp_path / "results", stack)

        changed.close = stack.close
        yield changed


def test_compiled_code_has_a_folder_that_stays_from_launch_to_launch(changed, tmp_path):
    found = changed(Change(name="kept", variables={"PYTHONPYCACHEPREFIX": "{kept}"}, advice=""))
    kept = tmp_path / "results/kept/docker+kept"
    assert found.variables == {"PYTHONPYCACHEPREFIX": str(kept)} and found.binds == (f"{kept}:{kept}",)
    assert kept.is_dir()
    changed.close()
    assert not kept.exists()


def test_a_folder_is_copied_and_shown_in_its_place(changed, tmp_path):
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/deep/file").write_text("x")
    found = changed(Change(name="staged", stage=(str(tmp_path / "data"), "/data"), advice=""))
    (bind,) = found.binds
    source, target = bind.split(":")
    assert target == "/data" and (tmp_path / "cache") in tmp_path.joinpath(source).parents
    assert Path(source, "deep/file").read_text() == "x"
    changed.close()
    assert not Path(source).exists()


def test_the_reference_s_python_comes_first(changed, tmp_path):
    for name in ("v", "py", "image/usr/local"):
        (tmp_path / name).mkdir(parents=True)
    own = (str(tmp_path / "v"), str(tmp_path / "py"))
    found = changed(Change(name="tree", tree=own[0], advice=""), "host", own)
    assert found.binds == tuple(f"{one}:{one}:ro" for one in own)
    assert found.variables["PATH"].startswith(f"{own[0]}/bin:")
    first = f"charliecloud={tmp_path / 'image'}"
    found = changed(Change(name="tree", tree="/usr/local", advice=""), first, ("/usr/local",))
    assert found.binds == (f"{tmp_path}/image/usr/local:/usr/local:ro",)


@pytest.mark.parametrize(
    ("first", "prefixes", "reason"),
    [
        ("host", None, "not known which Python"),
        ("host", ("/usr/local", "/usr"), r"part of its system \(/usr/local\)"),
        ("docker=img", ("/usr",), r"part of its system \(/usr\)"),
    ],
)
def test_a_python_that_can_not_be_shown_inside_says_why(changed, first, prefixes, reason):
    with pytest.raises(UnavailableError, match=reason):
        changed(Change(name="tree", tree="/usr", advice=""), first, prefixes)


def test_a_sandbox_needs_no_copy(tmp_path):
    (tmp_path / "box/opt/py").mkdir(parents=True)
    place = SimpleNamespace(choice=read_choice(f"apptainer={tmp_path / 'box'}"), adapter=None)
    with contextlib.ExitStack() as stack:
        assert str(folder_of(place, Path("/opt/py"), stack)) == f"{tmp_path}/box/opt/py"
