"""Toys in Chromium, without JupyterLab; `python -m tests.browser.toys` draws what they show first.

Beside each toy's script lies that drawing, for pages that run no script.
"""

import json
from html import escape

from course import catalogue
from course.play import toy
from tests.browser import lab

PAGE = """<!doctype html><title>toy</title><style>body {{ margin: 8px; background: {ground};
color: {ink}; {font} }} {css}</style><body><div id="toy"></div><script type="module">
{script}
toy.render({{ model: {{ get: () => ({data}) }}, el: document.getElementById("toy") }});
</script>"""
LETTERS = "font-family: sans-serif"


def keys():
    """List every toy there is."""
    return [
        f"{lesson.number}.{path.stem}"
        for package, lesson in catalogue.find().items()
        for path in sorted(catalogue.ROOT.joinpath(*package.split(".")).glob("*.js"))
    ]


def shown(browser, key, *, width=744, dark=False, motion=False, data=None):
    """Open a page with nothing but the toy."""
    page = browser.new_page(
        viewport={"width": width, "height": 700},
        reduced_motion="no-preference" if motion else "reduce",
    )
    script = toy.script_of(key).replace("export default", "const toy =")
    ground, ink = ("#111", "#eee") if dark else ("#fff", "#000")
    page.set_content(
        PAGE.format(
            ground=ground, ink=ink, font=LETTERS, css=toy.CSS, script=script,
            data=json.dumps(data or {}),
        )
    )  # fmt: skip
    page.wait_for_function("document.querySelector('.toy-words')?.textContent")
    return page


def drawing(page):
    """What the toy shows now, as a file of its own."""
    markup = page.evaluate("document.querySelector('.course-toy svg').outerHTML")
    words = escape(page.inner_text(".toy-words"))
    attributes = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13"'
    markup = markup.replace("<svg ", f"<svg {attributes} ", 1)
    return markup.replace("><defs>", f"><desc>{words}</desc><defs>", 1).replace("><", ">\n<") + "\n"


def main():
    """Draw them all."""
    with lab.browser() as browser:
        for key in keys():
            path = toy.path_of(key).with_suffix(".svg")
            path.write_text(drawing(shown(browser, key)), encoding="utf-8")
            print(f"written: {path.relative_to(catalogue.ROOT)}")


if __name__ == "__main__":
    main()
