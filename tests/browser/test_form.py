"""The form's own script in Chromium, without JupyterLab: keys, focus, and a kernel that is late."""

import json
from dataclasses import asdict

from pytest import mark

from course.predictions.form import Field, Form, Reply
from tests.browser import lab

pytestmark = [mark.timeout(120), lab.needs_chromium]
PAGE = """
<!doctype html><title>form</title><style>{css}</style><body style="margin:8px">
<script type="module">
const traits = {traits};
let changed = () => 0;
window.handed = [];
const model = {{ get: (name) => traits[name], on: (_, act) => {{ changed = act; }},
                 send: (content) => window.handed.push(content) }};
window.reply = (reply) => {{ traits.reply = reply; changed(); }};
{script}
document.addEventListener("keydown", (event) => {{  // as a notebook does
  if (event.key !== "Tab" && event.key.length > 1) event.preventDefault();
}}, true);
form.render({{ model, el: document.body }});
</script>"""
LONG = "the network between rank 2 and the switch loses packets, and sends them once more"


def shown(browser, made):
    page = browser.new_page(viewport={"width": 390, "height": 420})
    script = str(Form._esm).replace("export default", "const form =")
    traits = json.dumps({"ask": made.ask, "reply": made.reply})
    page.set_content(PAGE.format(css=Form._css, traits=traits, script=script))
    page.wait_for_selector(".course-form")
    return page


def form(title, question, rows, options=None):
    more = {"act": lambda *_: Reply("?"), "first": Reply("Commit first."), "options": options}
    buttons = {"commit": "Commit", "skip": "Skip"}
    return Form("course-question-form", title, question, rows=rows, buttons=buttons, **more)


@mark.slow
def test_a_form_fits_a_narrow_page_and_keys_choose_hand_over_once_and_go_on():
    with lab.browser() as browser:
        bounds = [Field("low", "at least"), Field("high", "at most", "µs")]
        rows = [("", [Field("answer", "I expect", "µs", "a number")]), ("between:", bounds)]
        page = shown(browser, form("Your prediction.", "How long?", rows))
        for name in ("I expect", "at least", "at most"):
            assert page.get_by_role("textbox", name=name).count() == 1
        lab.photograph(page, "figure-390")
        reason = Field("reason", "because", hint="one line", size=44, figure=False)
        options = {"a": "a) the queue", "b": f"b) {LONG}", "c": "c) a late rank"}
        vote = form("Your vote.", "What is the cause?", [("", [reason])], options)
        play(shown(browser, vote))


def play(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    field = page.locator("input[name=reason]").bounding_box()
    outer = page.locator(".course-form").bounding_box()
    assert field["x"] + field["width"] < outer["x"] + outer["width"]
    assert page.get_by_role("radio", name=LONG).count() == 1
    assert page.get_by_role("textbox", name="because").count() == 1
    assert page.get_by_role("group", name="What is the cause?").count() == 1
    lab.photograph(page, "form-390")

    page.get_by_role("radio").first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert page.get_by_role("radio").first.is_checked(), "round and round"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    page.keyboard.type("it waits")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    handed = page.evaluate("window.handed")
    assert handed == [{"do": "commit", "values": {"answer": "c", "reason": "it waits"}}], "once"
    page.get_by_text("The kernel is busy").wait_for(timeout=2000)
    page.evaluate("window.reply", asdict(Reply("Not committed: why?", error=True)))
    assert page.evaluate("document.activeElement.name") == "reason", "the focus stays"
    assert page.get_by_label("because").input_value() == "it waits", "and what was typed"
    page.keyboard.press("Enter")
    page.evaluate("window.reply", asdict(Reply("✔ committed", values=handed[0]["values"])))
    assert page.evaluate("document.activeElement.className") == "course-state"
    assert page.get_by_role("status").inner_text() == "✔ committed"
    page.evaluate("window.reply", asdict(Reply("locked", open=False)))
    assert page.get_by_role("radio").first.is_disabled()
    assert not page.get_by_role("button", name="Commit").is_visible()
