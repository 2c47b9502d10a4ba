"""Ask pip for a source archive without running any code of that archive.

pip's own commands execute setup.py to read a source archive's metadata, so none of them can fetch one
unseen. Its finder and its session do no more than read the index and download, and they bring the machine's
own mirrors, certificates, proxies and credentials. They are no public interface: this file is run as a
separate program (`python pip_sdist.py NAME VERSION [FILE]`) so that a change in pip ends here, with one line.
"""

import argparse
import sys
from pathlib import Path

CHUNK_BYTES = 1 << 16
PATIENCE = ["--retries", "1", "--timeout", "15"]


def main(name: str, version: str, destination: str | None) -> str:
    """Find the archive of one version; write it to `destination`, or only say that it is there."""
    from pip._internal.commands import create_command

    command = create_command("download")
    options, _ = command.parse_args(["--quiet", *PATIENCE, "--no-binary", ":all:", name])
    with command.main_context():
        session = command._build_session(options)  # type: ignore[attr-defined]
        finder = command._build_package_finder(  # type: ignore[attr-defined]
            options=options, session=session
        )
        links = [c.link for c in finder.find_all_candidates(name) if str(c.version) == version]
        links = [link for link in links if not link.is_wheel]
        if not links:
            return f"no index that pip knows has a source archive of {name} {version}, or none answers"
        if destination is None:
            return ""
        response = session.get(links[0].url_without_fragment, stream=True, headers={"Accept-Encoding": "identity"})
        response.raise_for_status()
        with Path(destination).open("wb") as handle:
            for chunk in response.iter_content(CHUNK_BYTES):
                handle.write(chunk)
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Ask pip for a source archive without running any code of it.")
    parser.add_argument("name", help="of the package")
    parser.add_argument("version")
    parser.add_argument(
        "destination", nargs="?", help="file to write; without it pip only says whether there is one"
    )
    asked = parser.parse_args()
    try:
        problem = main(asked.name, asked.version, asked.destination)
    except Exception as error:  # whatever a future pip does differently is a source that does not answer
        problem = f"pip could not fetch {asked.name} {asked.version}: {type(error).__name__}: {error}"
    if problem:
        print(" ".join(problem.split())[:400], file=sys.stderr)
        sys.exit(3)
