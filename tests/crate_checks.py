"""What roc-validator and rdflib say of a crate: a program of the environment .crate, where they are installed.

    .crate/bin/python tests/crate_checks.py < QUESTION.json

A question has `contexts` (what the addresses of contexts answer; no other is asked). It has `crate` (path of an
archive or a folder), `profile`, `severity` and `cache` (a folder), or `graph` (JSON-LD), `base` and `queries`
(SPARQL, by name). The answer is the list of the names of the checks that failed, or rows of strings by name.
"""

from __future__ import annotations

import argparse
import json
import sys
from types import SimpleNamespace
from typing import Any

Json = dict[str, Any]


def failed_checks(question: Json) -> list[str]:
    """Names of the checks of a profile that a crate does not pass."""
    from rocrate_validator import services
    from rocrate_validator.models import Severity, ValidationSettings
    from rocrate_validator.utils.http import HttpRequester

    def answer(url: str, **options: Any) -> SimpleNamespace:
        context = {"@context": question["contexts"][url]}
        return SimpleNamespace(
            status_code=200,
            headers={"Content-Type": "application/ld+json"},
            json=lambda: context,
            text=json.dumps(context),
        )

    HttpRequester.get = staticmethod(answer)
    settings = ValidationSettings(
        rocrate_uri=question["crate"],
        profile_identifier=question["profile"],
        requirement_severity=Severity[question["severity"]],
        offline=True,
        cache_path=question["cache"],
    )
    return sorted({one.check.name for one in services.validate(settings).get_issues()})


def answers(question: Json) -> dict[str, list[list[str]]]:
    """Rows that each query finds in a graph."""
    import rdflib

    graph = rdflib.Graph().parse(data=json.dumps(question["graph"]), format="json-ld", publicID=question["base"])
    return {
        name: [list(map(str, row)) for row in graph.query(query)] for name, query in question["queries"].items()
    }


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    asked = json.load(sys.stdin)
    json.dump(failed_checks(asked) if "crate" in asked else answers(asked), sys.stdout)
