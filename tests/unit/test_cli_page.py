"""docs/cli.md is what the parsers say, and each argument says what it is."""

import pytest
from cli_page import arguments, commands, helps, markdown

from tare.core.files import project_root


def test_the_page_is_what_the_parsers_say():
    page = project_root() / "docs/cli.md"
    assert page.read_text(encoding="utf-8") == markdown(), "run `python tests/cli_page.py > docs/cli.md`"


@pytest.mark.parametrize("name", commands())
def test_a_command_and_each_argument_of_it_has_its_help(name):
    assert helps()[name]
    assert [how for how, what in arguments(commands()[name]) if what.partition(";")[0].strip() == ""] == []
