"""Has MkDocs read the pages of docs/ as GitHub does: indentation, anchors, and links to files outside docs/."""

from __future__ import annotations

import re
from typing import Any

from markdown.blockprocessors import build_block_parser
from markdown.extensions import Extension
from pymdownx.slugs import slugify

OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./([^)\s]+)\)")


class Indentation(Extension):
    """What is indented by two spaces or more belongs to the item of a list above it."""

    def extendMarkdown(self, md: Any) -> None:
        """Read blocks so; it comes before extensions that add kinds of blocks."""
        md.tab_length = 2
        md.parser = build_block_parser(md)


def on_config(config: Any) -> Any:
    """Give headings the anchors that they have on GitHub, which our links name."""
    config.markdown_extensions.insert(0, Indentation())
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_page_markdown(markdown: str, /, *, config: Any, **_: Any) -> str:
    """Have links to files outside docs/ lead to the repository; without a repo_url they are the files' paths."""

    def replaced(link: re.Match[str]) -> str:
        text, target = link.groups()
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{target})"
        path = f"`{target.partition('#')[0]}`"
        return path if text.strip("`") == path.strip("`") else f"{text} ({path})"

    return OUTSIDE.sub(replaced, markdown)
