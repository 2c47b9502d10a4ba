"""Who else holds a hash, and since when: tags and notes of this checkout's git, a proof next to the file.

A tag's date is what the clock of its maker said. A signature says who made it; a copy that others fetched before
the data says when it was there at the latest. Of a proof of OpenTimestamps just its presence is reported:
`ots verify` checks the rest.
"""

from __future__ import annotations

from pathlib import Path

from tare.core.errors import TareError
from tare.core.files import project_root, write_text
from tare.core.process import run

NOTES = "refs/notes/tare"
SIGNATURES = ("-----BEGIN PGP SIGNATURE-----", "-----BEGIN SSH SIGNATURE-----")
GIT_S = 30.0


def witnesses(stamp: Path, sha256: str, root: Path | None = None) -> list[str]:
    """What else carries a stamp's hash than the file itself, a phrase each. `root`: a checkout; None: this one."""
    checkout = root or project_root()
    proof = stamp.with_name(f"{stamp.name}.ots")
    found = [f"a proof of OpenTimestamps (check its time with `ots verify {proof}`)"] if proof.exists() else []
    return [*_tags(checkout, sha256), *_notes(checkout, sha256), *found]


def message_of(stamp: Path, sha256: str) -> Path:
    """Write what a tag says that carries a stamp's hash; returns the file."""
    path = stamp.with_suffix(".tag")
    write_text(path, f"tare stamp {sha256}\n\nSHA-256 of {stamp.as_posix()}\n")
    return path


def commands(stamp: Path, sha256: str) -> list[str]:
    """What a user can type to leave a stamp's hash with others."""
    name = f"tare-stamp-{sha256[:12]}"
    key = "~/.ssh/id_ed25519"
    return [
        f"git tag -s {name} -F {stamp.with_suffix('.tag')} && git push origin {name}",
        f"git notes --ref={NOTES} add -m 'tare stamp {sha256}' HEAD && git push origin {NOTES}",
        f"ots stamp {stamp}",
        f"ssh-keygen -Y sign -n file -f {key} {stamp} && rekor-cli upload --artifact {stamp} "
        f"--signature {stamp}.sig --pki-format ssh --public-key {key}.pub",
    ]


def _tags(root: Path, sha256: str) -> list[str]:
    fields = "%(refname:short)%00%(objecttype)%00%(creatordate:iso-strict)%00%(contents)%00"
    answer = _git(root, "for-each-ref", "refs/tags", f"--format={fields}")
    parts = answer.split("\0")
    found = []
    for name, kind, date, text in zip(parts[0::4], parts[1::4], parts[2::4], parts[3::4], strict=False):
        if kind == "tag" and sha256 in text:
            found.append(f"the tag {name.strip()} of {date}, {_signed(root, name.strip(), text)}")
    return found


def _signed(root: Path, name: str, text: str) -> str:
    if not any(mark in text for mark in SIGNATURES):
        return "unsigned"
    return "signed" if _git(root, "tag", "-v", name) else "signed with a key that this machine does not know"


def _notes(root: Path, sha256: str) -> list[str]:
    if not _git(root, "grep", "-l", sha256, NOTES):
        return []
    return [f"a note of git of {_git(root, 'log', '-1', '--format=%cI', NOTES).strip()}, unsigned"]


def _git(root: Path, *arguments: str) -> str:
    """What git answers; empty where there is no git, no checkout, or no answer."""
    try:
        ended = run(["git", "-C", str(root), *arguments], timeout_s=GIT_S)
    except (OSError, TareError):
        return ""
    return ended.stdout if ended.ok else ""
