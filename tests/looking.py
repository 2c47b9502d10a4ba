"""What tests of pages ask a browser: text, labels that touch, what leaves the page, a server with a prefix."""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import re
import threading

# What a template, a format or a number leaves behind where it was not filled in. "None" and "inf" as whole
# words are in no sentence of ours.
UNFILLED = re.compile(r"\{[\w.\[\]]*\}|\{\{|\}\}|\{%|\b(?:nan|NaN|inf|None|undefined|NaT)\b|<NA>")
ALL_TEXT = """
  () => {
    const page = document.body.cloneNode(true);
    page.querySelectorAll('script, style').forEach(node => node.remove());
    const named = ['aria-label', 'title', 'placeholder', 'alt'].flatMap(
      name => [...page.querySelectorAll(`[${name}]`)].map(node => node.getAttribute(name)));
    const blocks = [...page.querySelectorAll('*')].flatMap(
      node => [...node.childNodes].filter(one => one.nodeType === 3).map(one => one.textContent.trim()));
    return [document.title, ...named, ...blocks].filter(text => text);
  }
"""
# Heights of letters as they are on the screen, in pixels.
LETTERS = """
  nodes => nodes.map(node => {
    const turn = node.getScreenCTM();
    return parseFloat(getComputedStyle(node).fontSize) * Math.hypot(turn.a, turn.b);
  })
"""
# Labels of one figure whose letters meet, some of them turned. Two boxes are apart if a side of one divides them.
# A box has air above and below its letters, which is left out.
TOUCHING = """
  () => {
    const AIR = 0.2;
    const corners = node => {
      const box = node.getBBox(), turn = node.getScreenCTM();
      const [top, bottom] = [box.y + AIR * box.height, box.y + (1 - AIR) * box.height];
      return [[box.x, top], [box.x + box.width, top], [box.x + box.width, bottom], [box.x, bottom]].map(
        ([x, y]) => [turn.a * x + turn.c * y + turn.e, turn.b * x + turn.d * y + turn.f]);
    };
    const apart = (one, other, from, to) => {
      const [x, y] = [to[1] - from[1], from[0] - to[0]];
      const along = box => box.map(corner => (corner[0] * x + corner[1] * y) / Math.hypot(x, y));
      return Math.min(Math.max(...along(one)), Math.max(...along(other)))
        - Math.max(Math.min(...along(one)), Math.min(...along(other))) < 1;
    };
    const meet = (one, other) => [one, other].every(
      box => !apart(one, other, box[0], box[1]) && !apart(one, other, box[1], box[2]));
    const found = [];
    for (const svg of document.querySelectorAll('figure svg')) {
      const texts = [...svg.querySelectorAll('text')].filter(node => node.textContent.trim());
      const boxes = texts.map(corners);
      boxes.forEach((one, a) => boxes.slice(a + 1).forEach((other, b) => {
        if (meet(one, other)) {
          found.push([svg.getAttribute('aria-labelledby'), texts[a].textContent, texts[a + 1 + b].textContent]);
        }
      }));
    }
    return found;
  }
"""
# What is wider than the page and can't be scrolled to.
OUTSIDE = """
  () => [...document.querySelectorAll('main *, header *, footer *')]
    .filter(node => node.getBoundingClientRect().width > 0)
    .filter(node => node.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .filter(node => { const box = node.closest('.scroll, .visually-hidden, .skip, svg');
                      return !box || (getComputedStyle(box).overflowX === 'visible' && box.tagName !== 'svg') })
    .map(node => node.tagName + '.' + node.className + ': ' + node.textContent.trim().slice(0, 60))
    .slice(0, 5)
"""


def unfilled(page):
    """Texts of a page, its figures and names that hold a placeholder that nobody filled in."""
    return [text for text in page.evaluate(ALL_TEXT) if UNFILLED.search(text)]


def unfilled_texts(page):
    """The same of a page's HTML, without a browser: its texts, and those of its figures."""
    shown = re.sub(r"<(script|style|metadata)\b.*?</\1>", "", page, flags=re.DOTALL)
    texts = (html.unescape(text).strip() for text in re.split(r"<[^>]*>", shown))
    return [text for text in texts if UNFILLED.search(text)]


class _Handler(http.server.SimpleHTTPRequestHandler):
    """A folder below a prefix; everything else is not found."""

    prefix = "/"

    def translate_path(self, path):
        if not path.startswith(self.prefix):
            return self.directory + "/there-is-no-such-file"
        return super().translate_path("/" + path.removeprefix(self.prefix))

    def log_message(self, *args):
        """A test's output is not the place."""


@contextlib.contextmanager
def served(folder, prefix):
    """The address of a folder below a prefix on a server of this machine, plain HTTP."""
    handler = type("Handler", (_Handler,), {"prefix": prefix})
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    ) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{prefix}"
        finally:
            server.shutdown()
            thread.join()
