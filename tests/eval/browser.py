#!/usr/bin/env python3
"""Checks a page of `chunkkv eval` in a real browser: browser.py PAGE.html [--shots FOLDER]

Light and dark, on a phone's width and a desk's: nothing wider than the window, text that can be read, pictures with their text
inside, no requests, no complaints on the console, and that it prints. Exit status 77: there is no chromium."""
import argparse
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77

# Stands around the page, which stays as it is, in a frame of the wanted width, and measures it from outside.
AROUND = """<!DOCTYPE html><html style="color-scheme:%(scheme)s"><meta charset="utf-8"><style>body{margin:0}
iframe{border:0;width:%(width)dpx;height:900px;color-scheme:%(scheme)s}</style>
<iframe id="page" srcdoc="%(page)s"></iframe><pre id="measured">nothing</pre><script>
const frame = document.getElementById('page'), result = document.getElementById('measured');
function rgb(text) { return (text.match(/[\\d.]+/g) || []).map(Number); }
function light(text) {
  const [r, g, b] = rgb(text).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(a, b) { const x = light(a), y = light(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); }
function behind(view, e) {
  for (; e; e = e.parentElement) {
    const c = view.getComputedStyle(e).backgroundColor, parts = rgb(c);
    if (parts.length < 4 || parts[3] > 0) return c;
  }
  return 'rgb(255, 255, 255)';
}
function measure() {
  const view = frame.contentWindow, page = frame.contentDocument, root = page.documentElement, found = {};
  page.querySelectorAll('details').forEach(d => { d.open = true; });
  found.width = view.innerWidth;
  found.body = Math.max(root.scrollWidth, page.body.scrollWidth);
  found.background = light(view.getComputedStyle(page.body).backgroundColor);
  found.ink = light(view.getComputedStyle(page.body).color);
  found.h1 = page.querySelectorAll('h1').length;
  found.h2 = [...page.querySelectorAll('h2')].map(e => e.textContent);
  found.scripts = page.querySelectorAll('script, iframe, object, embed, img, link, video, audio').length;
  found.handlers = [...page.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on'))).length;
  found.tables = page.querySelectorAll('table').length;
  found.uncaptioned = [...page.querySelectorAll('table')].filter(t => !t.caption || !t.caption.textContent.trim()).length;
  found.unscoped = [...page.querySelectorAll('th')].filter(e => !e.scope).length;
  found.dead = [...page.querySelectorAll('a')].filter(a => !page.querySelector(a.getAttribute('href'))).map(a => a.outerHTML);
  found.pale = [];
  page.querySelectorAll('p, td, th, dt, dd, h1, h2, h3, h4, summary, small, caption, figcaption, a, .said, .key span').forEach(e => {
    const c = contrast(view.getComputedStyle(e).color, behind(view, e));
    if (e.textContent.trim() && c < 4.5) found.pale.push([e.tagName, e.className, e.textContent.slice(0, 30), c]);
  });
  found.svgs = page.querySelectorAll('svg').length;
  found.flat = []; found.outside = []; found.unnamed = []; found.over = []; found.palePicture = [];
  page.querySelectorAll('svg').forEach(svg => {
    const box = svg.viewBox.baseVal, size = svg.getBoundingClientRect();
    if (!(size.width > 0 && size.height > 0)) found.flat.push(svg.outerHTML.slice(0, 80));
    if (!svg.getAttribute('aria-label') && !svg.getAttribute('aria-hidden')) found.unnamed.push(svg.outerHTML.slice(0, 80));
    const boxes = [];
    svg.querySelectorAll('text').forEach(text => {
      const b = text.getBBox();
      if (b.x < box.x - 0.5 || b.y < box.y - 0.5 || b.x + b.width > box.x + box.width + 0.5 ||
          b.y + b.height > box.y + box.height + 0.5) found.outside.push(text.textContent);
      for (const [o, other] of boxes) {
        const wide = Math.min(b.x + b.width, o.x + o.width) - Math.max(b.x, o.x);
        const high = Math.min(b.y + b.height, o.y + o.height) - Math.max(b.y, o.y);
        if (wide > 2 && high > 4) found.over.push(text.textContent + ' / ' + other);
      }
      boxes.push([b, text.textContent]);
      const cell = text.previousElementSibling;
      const under = cell && cell.tagName === 'rect' ? view.getComputedStyle(cell).fill : behind(view, svg);
      const c = contrast(view.getComputedStyle(text).fill, under);
      if (c < 4.5) found.palePicture.push([text.textContent, c]);
    });
  });
  return found;
}
frame.addEventListener('load', () => {
  try { result.textContent = JSON.stringify(measure()); } catch (e) { result.textContent = 'failed: ' + e; }
});
</script></html>"""


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    def __init__(self, program, folder):
        self.command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                        "--disable-background-networking", f"--user-data-dir={folder}/profile", "--enable-logging=stderr"]
        self.folder = pathlib.Path(folder)

    def run(self, *arguments, dark=False):
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        done = subprocess.run([*self.command, scheme, *arguments], capture_output=True, text=True, errors="replace", timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"chromium ended with {done.returncode}: {done.stderr[-800:]}")
        return done

    def measure(self, page, width, dark):
        around = self.folder / "around.html"
        scheme = "dark" if dark else "light"
        around.write_text(AROUND % {"scheme": scheme, "width": width, "page": html.escape(page)}, encoding="utf-8")
        done = self.run(f"--window-size={max(width, 600)},1000", "--virtual-time-budget=10000", "--dump-dom", around.as_uri(),
                        dark=dark)
        found = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout, re.S)
        try:
            measured = json.loads(html.unescape(found.group(1)))
        except (AttributeError, json.JSONDecodeError):
            raise RuntimeError(f"the page could not be measured: {found and found.group(1)[:300]}")
        return measured, re.findall(r"CONSOLE.*", done.stderr)

    def picture(self, page, width, dark, to, height=1400):
        around = self.folder / "around.html"
        text = AROUND % {"scheme": "dark" if dark else "light", "width": width, "page": html.escape(page)}
        around.write_text(text.replace("height:900px", f"height:{height}px"), encoding="utf-8")
        self.run(f"--window-size={max(width, 600)},{height}", f"--screenshot={to}", around.as_uri(), dark=dark)

    def pdf_pages(self, page):
        copy, pdf = self.folder / "page.html", self.folder / "page.pdf"
        copy.write_text(page, encoding="utf-8")
        done = self.run("--no-pdf-header-footer", f"--print-to-pdf={pdf}", copy.as_uri())
        return len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())), re.findall(r"CONSOLE.*", done.stderr)


def outside_addresses(page):
    """What a browser would fetch: addresses in attributes and style, and not in text that is shown."""
    tags = "".join(re.findall(r"<[a-zA-Z!][^>]*>", page)) + "".join(re.findall(r"<style>.*?</style>", page, re.S))
    return re.findall(r"(?:src|href|srcset|action|data)\s*=\s*[\"']?\s*(?:https?:)?//[^\s\"'>]*|url\([^)]*\)|@import[^;]*", tags)


def faults_of(m, width, dark):
    """Each thing that is wrong, in words."""
    checks = [
        (m["width"] == width, f"the frame is {m['width']} wide"),
        (m["body"] <= width, f"the page is {m['body']} wide"),
        ((m["background"] < m["ink"]) == dark, "the colour scheme is not followed"),
        (m["h1"] == 1 and len(m["h2"]) >= 4, f"headings: {m['h1']} first, then {m['h2']}"),
        (m["scripts"] == 0 and m["handlers"] == 0, f"{m['scripts']} foreign elements, {m['handlers']} event handlers"),
        (m["uncaptioned"] == 0 and m["unscoped"] == 0, f"{m['uncaptioned']} tables without caption, {m['unscoped']} th without scope"),
    ]
    faults = [text for good, text in checks if not good]
    for name, what in (("dead", "links to nowhere"), ("pale", "text of too little contrast"), ("flat", "pictures without size"),
                       ("unnamed", "pictures without a name"), ("outside", "text outside its picture"),
                       ("over", "texts over each other"), ("palePicture", "text of too little contrast in pictures")):
        if m[name]:
            faults.append(f"{len(m[name])} {what}: {m[name][:4]}")
    return faults


def check(browser, page, shots, name):
    faults = [f"it would fetch {a}" for a in outside_addresses(page)]
    for width in (380, 1200):
        for dark in (False, True):
            measured, console = browser.measure(page, width, dark)
            where = f"{width} wide, {'dark' if dark else 'light'}"
            faults += [f"{where}: {f}" for f in faults_of(measured, width, dark) + [f"console: {c}" for c in console]]
            if shots:
                browser.picture(page, width, dark, shots / f"{name}-{width}-{'dark' if dark else 'light'}.png", 6000)
    pages, console = browser.pdf_pages(page)
    if not pages:
        faults.append("it prints no page")
    return faults + [f"console: {c}" for c in console], measured, pages


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path, help="folder for pictures of the pages")
    options = parser.parse_args()
    program = find_chromium()
    if not program:
        print("no chromium: skipped")
        return SKIPPED
    failed = False
    with tempfile.TemporaryDirectory(prefix="chunkkv-page-") as folder:
        browser = Browser(program, folder)
        for path in options.pages:
            faults, measured, pages = check(browser, path.read_text(encoding="utf-8"), options.shots, path.stem)
            for fault in faults:
                print(f"{path}: {fault}")
            failed |= bool(faults)
            print(f"{path}: {measured['svgs']} pictures, {measured['tables']} tables, {pages} pages, {len(faults)} faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
