"""Toys in Chromium, without JupyterLab; `python -m tools.stills` draws what they show first.

Beside each toy's script lies that drawing, for pages that run no script. README's `door.svg` is a
flip book of such drawings.
"""

import re
from html import escape

from course import catalogue
from course.play import toy
from tests.browser import lab

PAGE = """<!doctype html><title>toy</title><style>body {{ margin: 8px; background: #fff;
color: #000; {font} }} {css}</style><body><div id="toy"></div><script type="module">
{script}
toy.render({{ model: {{ get: () => ({{}}) }}, el: document.getElementById("toy") }});
</script>"""
LETTERS = "font-family: sans-serif"


def keys():
    """List every toy there is."""
    return [
        f"{lesson.number}.{path.stem}"
        for package, lesson in catalogue.find().items()
        for path in sorted(catalogue.ROOT.joinpath(*package.split(".")).glob("*.js"))
    ]


def shown(page, key):
    """Show nothing but the toy, standing still, in this page of the browser; return the page."""
    page.goto("about:blank")  # ends the toy before it
    page.set_viewport_size({"width": 744, "height": 700})
    page.emulate_media(reduced_motion="reduce")
    script = toy.script_of(key).replace("export default", "const toy =")
    page.set_content(PAGE.format(font=LETTERS, css=toy.CSS, script=script))
    page.wait_for_function("document.querySelector('.toy-words')?.textContent")
    return page


def drawing(page):
    """What the toy shows now, as a file of its own."""
    markup = page.evaluate("document.querySelector('.course-toy svg').outerHTML")
    words = escape(page.inner_text(".toy-words"))
    attributes = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13"'
    markup = markup.replace("<svg ", f"<svg {attributes} ", 1)
    return markup.replace("><defs>", f"><desc>{words}</desc><defs>", 1).replace("><", ">\n<") + "\n"


FILM = """<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13" \
viewBox="-8 -4 {width} {height}" width="{width}" height="{height}"><desc>{words}</desc>
<style>.page {{ visibility: hidden; animation: page {seconds}s step-end infinite }}
@keyframes page {{ 0% {{ visibility: visible }} {share}% {{ visibility: hidden }} }}
.last {{ animation-name: last }}
@keyframes last {{ 0% {{ visibility: visible }} {rest}% {{ visibility: hidden }} }}
@media (prefers-reduced-motion: reduce) {{ .page {{ animation: none }} \
.page:last-child {{ visibility: visible }} }}</style>
<rect x="-8" y="-4" width="100%" height="100%" rx="8" fill="#fff"/>{defs}{pages}</svg>
"""
FILM_WORDS = (
    "Four ranks come to one all_reduce. Whoever is there waits, hatched, before a door. When rank "
    "2, the last, has come, the door opens, and the bytes move for 20 ms. The stopwatches then "
    "show 50, 40, 20 and 30 ms. Then rank 1 comes last, at 45 ms: now its stopwatch shows the "
    "least, 20 ms, and those of the others more."
)


def film(browser):
    """Play the door, let rank 1 come later and play it again: all as one moving picture."""
    page = browser.new_page(viewport={"width": 744, "height": 700})
    page.clock.install(time=0)
    script = toy.script_of("02.door").replace("export default", "const toy =")
    page.set_content(PAGE.format(font="", css="", script=script))
    page.wait_for_selector(".course-toy text")
    page.clock.pause_at(10_000)
    seen = []

    def take(times, act=lambda: page.clock.run_for(200)):
        for _ in range(times):
            act()
            markup = page.evaluate("document.querySelector('.course-toy svg').innerHTML")
            markup = re.sub(r' (tabindex|role|aria-\w+|class)="[^"]*"', "", markup)
            seen.append(re.sub(r'<(circle|rect)[^>]*fill="transparent"[^>]*></\1>', "", markup))

    page.get_by_role("button").press("Enter")
    take(16)
    rank_1 = page.get_by_label("arrival of rank 1")
    take(7, lambda: rank_1.press("PageUp"))
    page.get_by_role("button").press("Enter")
    take(16)
    defs = re.search("<defs>.*?</defs>", seen[0])[0]
    moments, seconds = [markup.replace(defs, "") for markup in seen], 0.15 * (len(seen) + 10)
    pages = [
        f'<g class="page" style="animation-delay: {0.15 * place:.2f}s">{moment}</g>'
        for place, moment in enumerate(moments)
    ]
    pages[-1] = pages[-1].replace('class="page"', 'class="page last"', 1)
    return FILM.format(
        width=736, height=236, words=FILM_WORDS, defs=defs, pages="\n".join(pages),
        seconds=seconds, share=100 * 0.15 / seconds, rest=100 * 0.15 * 11 / seconds,
    )  # fmt: skip


def main():
    """Draw them all."""
    with lab.browser() as browser:
        page = browser.new_page()
        for key in keys():
            path = toy.path_of(key).with_suffix(".svg")
            path.write_text(drawing(shown(page, key)), encoding="utf-8")
            print(f"written: {path.relative_to(catalogue.ROOT)}")
        (catalogue.ROOT / "docs/pictures/door.svg").write_text(film(browser), encoding="utf-8")


if __name__ == "__main__":
    main()
