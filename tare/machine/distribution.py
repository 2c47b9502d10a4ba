"""What this machine's distribution is, and its own archives that apt is configured with."""

from __future__ import annotations

import platform
import re
from pathlib import Path

APT = Path("/etc/apt")


def host_release() -> dict[str, str]:
    """What /etc/os-release says; empty where there is none."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def host_sources(codename: str, folder: Path = APT) -> list[str]:
    """The machine's own archives of its release as one-line apt sources, other publishers' left out."""
    lines: list[str] = []
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if path.suffix == ".list" and path.exists():
            lines += path.read_text(encoding="utf-8").splitlines()
        elif path.suffix == ".sources":
            lines += [line for stanza in _stanzas(path) for line in _one_lines(stanza)]
    kept = []
    for line in lines:
        match = re.match(r"deb\s+(\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+\S", line.strip())
        if match and (match[3] == codename or match[3].startswith(f"{codename}-")) and ":" in match[2]:
            kept.append(line.strip())
    return kept


def archive_addresses(folder: Path = APT) -> list[str]:
    """Addresses of the archives of this machine's release on the web, each once."""
    lines = host_sources(host_release().get("VERSION_CODENAME", ""), folder)
    found = (re.match(r"deb\s+(?:\[[^]]*\]\s+)?(https?:\S+)", line) for line in lines)
    return list(dict.fromkeys(match[1].rstrip("/") for match in found if match))


def _stanzas(path: Path) -> list[dict[str, str]]:
    text = re.sub(r"(?m)^#.*\n?", "", path.read_text(encoding="utf-8"))
    stanzas = []
    for block in re.split(r"\n\s*\n", re.sub(r"\n[ \t]+", " ", text)):
        fields = (line.partition(":") for line in block.splitlines() if ":" in line)
        stanzas.append({name.strip().lower(): value.strip() for name, _, value in fields})
    return stanzas


def _one_lines(stanza: dict[str, str]) -> list[str]:
    if "deb" not in stanza.get("types", "").split() or stanza.get("enabled", "yes").lower() == "no":
        return []
    signed = stanza.get("signed-by", "")
    option = f"[signed-by={signed}] " if signed.startswith("/") else ""
    return [
        f"deb {option}{uri} {suite} {stanza.get('components', '')}"
        for uri in stanza.get("uris", "").split()
        for suite in stanza.get("suites", "").split()
    ]
