"""Images in a daemon of the machine's own: noted before they are loaded, taken away with the packages."""

import json
from pathlib import Path

import pytest

from tare.core.errors import UnavailableError
from tare.model.environment import OciImage
from tare.model.registry import environment
from tare.runtimes import daemon, daemon_images, remove

FIRST, SECOND = (f"sha256:{letter * 64}" for letter in "ab")
# A client whose daemon is a folder of files: an image is there while its file is.
CLIENT = """#!/bin/sh
place=$DAEMON/$(echo "${DOCKER_HOST:-own}" | tr -c 'a-z0-9\\n' _)
mkdir -p "$place"
case "$*" in
    "image inspect --format {{.Id}} "*) [ -e "$place/$5" ] && echo "$5" ;;
    "image inspect --format {{.Size}} "*) echo 7 ;;
    "info "*) echo '{"Driver": "overlay2"}' ;;
    "load "*) [ -z "$FULL" ] || { echo "no space left on device" >&2; exit 1; }; cp "$4" "$place/$(cat "$4")" ;;
    "image rm "*)
        [ -e "$place/$3" ] || { echo "Error: No such image: $3" >&2; exit 1; }
        [ ! -e "$place/$3.used" ] || { echo "conflict: image is being used by a container" >&2; exit 1; }
        rm "$place/$3" ;;
    *) exit 9 ;;
esac
"""


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A docker client on the PATH and the folder that is its daemon; the machine's own daemon answers."""
    programs = tmp_path / "bin"
    programs.mkdir()
    folder = tmp_path / "daemon"
    text = CLIENT.replace("$DAEMON", str(folder)).replace(
        "$FULL", "$(cat " + str(tmp_path / "full") + " 2>/dev/null)"
    )
    (programs / "docker").write_text(text)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(daemon, "answers", lambda path: path == daemon.DEFAULT_SOCKET)
    return folder


def load(folder: Path, image_id: str) -> None:
    archive = folder.parent / f"{image_id[-1]}.tar"
    archive.write_text(image_id)
    environment("docker").prepare(
        OciImage(archive=archive, digest="d", image_id=image_id, tag="tare/a:b", tree=folder), folder
    )


def test_what_was_loaded_is_taken_away_and_what_was_there_stays(client, tmp_path, capsys):
    load(client, FIRST)
    (client / "own" / SECOND).touch()
    load(client, SECOND)  # the daemon has it: whoever made it keeps it
    assert daemon_images.noted() == {"": [FIRST]}
    assert remove.remove() == 0
    assert [path.name for path in (client / "own").iterdir()] == [SECOND]
    assert "removed 1 images that Tare had loaded into the Docker daemon" in capsys.readouterr().out
    assert remove.remove() == 0 and not daemon_images.path().exists()
    assert capsys.readouterr().out.strip() == "Tare has installed nothing on this machine"


def test_an_image_is_noted_by_its_daemon_before_it_is_loaded(client, tmp_path, monkeypatch):
    load(client, FIRST)
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2376")
    (tmp_path / "full").write_text("1")
    with pytest.raises(Exception, match="no space left"):
        load(client, SECOND)
    assert daemon_images.noted() == {"": [FIRST], "tcp://elsewhere:2376": [SECOND]}
    monkeypatch.delenv("DOCKER_HOST")
    assert remove.remove() == 0  # what never came to be there is gone
    assert not list((client / "own").iterdir())


def test_an_image_that_is_in_use_stays_and_is_named(client, capsys):
    load(client, FIRST)
    load(client, SECOND)
    (client / "own" / f"{SECOND}.used").touch()
    assert remove.remove() == 3
    said = capsys.readouterr().out
    assert f"{SECOND} stays in the Docker daemon" in said and "being used by a container" in said
    assert "removed 1 images" in said
    assert json.loads(daemon_images.path().read_text()) == {"": [SECOND]}


def test_without_a_client_they_stay_and_it_is_said(client, monkeypatch, capsys):
    load(client, FIRST)
    monkeypatch.setenv("PATH", "/nowhere")
    assert remove.remove() == 3
    assert "1 images stay in a Docker daemon: there is no docker command to remove them" in capsys.readouterr().out


def test_images_of_the_private_daemon_go_with_the_cache(client, monkeypatch):
    places = daemon.state()
    monkeypatch.setattr(daemon, "answers", lambda path: path == places.socket)
    monkeypatch.setattr(daemon, "_program", lambda: Path("/usr/bin/dockerd"))
    try:
        load(client, FIRST)
    except UnavailableError:
        pytest.fail("the private daemon answers")
    assert daemon_images.noted() == {}
