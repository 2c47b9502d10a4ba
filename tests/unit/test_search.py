"""The search over a report's pages: what stands where, and data that no text can break out of."""

import json

from tare.report import search

PAGE = """<!doctype html><html><head><title>T</title><style>p { color: red }</style></head><body>
<nav><a href="x">Elsewhere</a></nav><h1>Head</h1>
<section id="one"><h2>First</h2><p>Some <code>inline</code> text</p><p>Some <code>inline</code> text</p>
<table><caption>Numbers</caption><tr><th>docker<br>again</th><td>1.5&nbsp;s</td></tr></table>
<svg><text>drawn</text></svg></section>
<section id="two"><h3>Second</h3><ul><li>a &lt;b&gt; &amp; c</li></ul></section>
<footer>Written</footer></body></html>"""


def test_every_text_that_is_seen_is_found_once_with_its_heading():
    found = search.entries({"a.html": PAGE})
    assert found == [
        ("a.html", "", "Head", "Head"),
        ("a.html", "one", "First", "First"),
        ("a.html", "one", "First", "Some inline text"),
        ("a.html", "one", "First", "Numbers"),
        ("a.html", "one", "First", "docker again"),
        ("a.html", "one", "First", "1.5 s"),
        ("a.html", "two", "Second", "Second"),
        ("a.html", "two", "Second", "a <b> & c"),
    ]


def test_long_texts_are_cut_at_a_word():
    [entry] = search.entries({"a.html": f"<p>{'word ' * 100}</p>"})
    assert entry[3].endswith("word …") and len(entry[3]) <= search.LONGEST + 2


def test_data_cannot_end_its_script_element():
    text = search.as_data([("a.html", "one", "H", "</script><img src=x onerror=alert(1)>")])
    assert "<" not in text and ">" not in text
    assert json.loads(text)["texts"] == [[0, "</script><img src=x onerror=alert(1)>"]]


def test_a_script_is_named_by_the_hash_that_browsers_compute():
    assert search.source_hash("alert(1)") == "sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI="
