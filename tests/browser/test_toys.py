"""Each toy in Chromium: its goals are reached by keys alone, and what it shows first is kept."""

from pytest import fixture, mark

from course.lessons.p2p_topology import flows
from course.lessons.p2p_topology.topology import PUZZLE
from course.lessons.pipeline_p2p.schedules import Batch, Channel, gpipe, programs, transfers_of
from course.lessons.pipeline_p2p.simulator import Costs, Deadlock, simulate
from course.play import toy
from tests.browser import lab
from tools import stills

pytestmark = [mark.slow, mark.timeout(300), lab.needs_chromium]
IN, WATCH = "which rank 1 receives from rank", "the stopwatch's"
KEYS = {
    "00.sum": [("number of rank 0", "ArrowRight ArrowRight"), ("▶ all_reduce", "Space Space")],
    "00.watch": [
        (f"{WATCH} start", "Home"),
        (f"{WATCH} stop", "End"),  # Dan
        (f"{WATCH} start", 3 * "PageUp "),
        (f"{WATCH} stop", 7 * "PageDown " + "ArrowLeft ArrowLeft"),  # Ada
        (f"{WATCH} stop", "PageUp" + 4 * " ArrowLeft"),
        (f"{WATCH} start", "PageUp PageUp" + 4 * " ArrowRight"),  # Ben
        (f"{WATCH} stop", 4 * "PageUp " + 4 * " ArrowLeft"),
        (f"{WATCH} start", "PageUp" + 4 * " ArrowRight"),  # Cleo
        (f"{WATCH} stop", "PageUp" + 4 * " ArrowRight"),
        (f"{WATCH} start", 3 * "PageUp "),  # Eve
    ],
    "01.counter": [
        ("customers", 4 * "ArrowRight "),
        ("elsewhere", 6 * "ArrowRight "),
        ("customers", "End"),
        ("elsewhere", "ArrowRight ArrowRight"),
        ("elsewhere", 8 * "ArrowLeft "),
        ("work", "ArrowLeft ArrowLeft"),
    ],
    "02.door": [
        ("arrival of rank 1", "End"),
        ("arrival of rank 3", "Home"),
        ("arrival of rank 0", "PageUp"),
        ("how long the bytes move", "Home ArrowRight"),
        ("arrival of rank 0", "Home"),
        ("arrival of rank 1", "Home"),
        ("arrival of rank 2", "End" + 12 * " ArrowLeft"),
    ],
    "03.parcels": [
        ("number of boxes", "Home ArrowRight ArrowRight", "▶ Send"),
        ("number of boxes", "Home", "▶ Send"),
        ("Keep the boxes", "Space", "▶ Send"),
        ("price of a trip", "ArrowRight ArrowRight", "▶ Send"),
        ("number of boxes", "End", "▶ Send"),
    ],
    "04.map": [("over 5", "Space"), ("in chunks", "Space"), ("over 7", "Space")],
    "05.queues": [
        (f"F1, {IN} 0", "ArrowLeft"),
        (f"F2, {IN} 0", "ArrowLeft"),
        (f"B1, {IN} 2", "ArrowLeft"),
        (f"B2, {IN} 2", "ArrowLeft"),
        (f"B0, {IN} 2", "Home"),
    ],
    "05b.waits": [
        ("▶ All, in turn", "Space"),
        ("send to 1, on rank 0", "Home", "▶ All, in turn"),
        ("return, on rank 1", "ArrowLeft", "▶ All, in turn"),
        ("return, on rank 1", "End"),
        ("all_reduce, on rank 0", "Home", "▶ All, in turn"),
    ],
    "06.ring": [
        *((f"chunk r - {number}", "Space") for number in (1, 2, 3)),
        ("↺ Start again", "Space"),
        ("everything", "Space Space"),
    ],
    "07.rails": [
        ("ring B", "ArrowRight ArrowRight", "▶ all_reduce"),
        ("ring C", "End ArrowLeft"),
        ("ring D", "End", "▶ all_reduce"),
        ("ring C", "Home"),
        ("Card 2 is sick", "Space", "▶ all_reduce"),
    ],
}
"""By toy: what has the focus, which keys are pressed there, and which button after that."""


@fixture(scope="module")
def page():
    with lab.browser() as started:
        yield started.new_page()


def focus(page, label):
    """Go on by the tabulator until what bears the label has the focus."""
    now = "document.activeElement"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"{now}.ariaLabel ?? {now}.textContent").strip() == label:
            return
    raise AssertionError(f"the tabulator does not reach {label!r}")


def play(page, key):
    """Reach all goals by keys alone."""
    for label, keys, *button in KEYS[key]:
        focus(page, label)
        for one in keys.split():
            page.keyboard.press(one)
        for last in button:
            focus(page, last)
            page.keyboard.press("Space")
    page.get_by_text("All goals met.").wait_for(timeout=5000)


@mark.parametrize("key", stills.keys())
def test_its_still_is_what_it_draws_and_keys_alone_reach_every_goal(page, key):
    drawn, still = stills.drawing(stills.shown(page, key)), toy.path_of(key).with_suffix(".svg")
    assert still.read_text(encoding="utf-8") == drawn, "draw it anew: python -m tools.stills"
    page.set_viewport_size({"width": 390, "height": 700})
    play(page, key)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    lab.photograph(page, f"toy-{key}")


def test_a_mouse_drags_and_words_say_what_is_seen(page):
    stills.shown(page, "02.door")
    edge = page.get_by_label("how long the bytes move").bounding_box()
    page.mouse.move(edge["x"] + edge["width"] / 2, edge["y"] + 30)
    page.mouse.down()
    page.mouse.move(edge["x"] - 60, edge["y"] + 40, steps=4)
    page.mouse.up()
    moving = int(page.get_by_label("how long the bytes move").get_attribute("aria-valuenow"))
    assert moving < 15
    page.get_by_text(f"The bytes move for {moving} ms.").wait_for(timeout=2000)


def test_whoever_comes_by_keys_from_below_sees_what_they_play(page):
    stills.shown(page, "06.ring")
    tall = page.locator(".course-toy").bounding_box()["height"]
    page.set_viewport_size({"width": 744, "height": round(tall) + 150})
    room = "'<button>below</button><div style=height:99em></div>'"
    for where in ("afterbegin", "beforeend"):
        page.evaluate(f"document.body.insertAdjacentHTML('{where}', {room})")
    page.get_by_role("button", name="below").last.focus()
    page.evaluate("scrollTo(0, 1e6)")
    page.keyboard.press("Shift+Tab")
    assert page.locator(".course-toy").bounding_box()["y"] >= 0


def test_the_map_takes_the_models_times(page):
    stills.shown(page, "04.map")
    for relay in (5, 7):
        page.get_by_text(f"over {relay}").click()
    page.get_by_text("in chunks").click()
    ways = [[0, 5, 2], [0, 7, 2]]
    seconds = flows.ways_time(PUZZLE.bandwidth, ways, nbytes=400e6, chunk=1)
    page.get_by_text(f"The last byte arrives after {1e3 * seconds:.1f} ms.").first.wait_for()


def test_any_relays_that_beat_the_direct_way_meet_the_maps_first_goal(page):
    stills.shown(page, "04.map")
    for relay in (1, 3):  # over 1 alone it is slower than directly
        page.get_by_text(f"over {relay}").click()
    page.locator("li.toy-met").wait_for(timeout=3000)


def test_the_queues_take_the_simulators_times(page):
    stills.shown(page, "05.queues")
    plan = gpipe(stages=3, micro_batches=3)
    usual = programs(plan, batched=False)
    named = {str(transfer): transfer for transfer in transfers_of(usual[1])}
    costs, words = Costs(0.0125, 0.025, leg=0.0082), ""
    for label, key in [("", ""), *KEYS["05.queues"]]:
        if label:
            focus(page, label)
            page.keyboard.press(key)
            changed = "before => document.querySelector('.toy-words').innerText !== before"
            page.wait_for_function(changed, arg=words)  # they come when all stands still
        words = page.inner_text(".toy-words")
        middle = [named[name] for name in words.split("queue: ")[1].rstrip(".").split(", ")]
        orders = transfers_of(usual[0]), middle, transfers_of(usual[2])
        ranks = [
            (*(Batch((transfer,)) for transfer in order), *tasks)
            for order, tasks in zip(orders, plan, strict=True)
        ]
        try:
            seconds = simulate(ranks, costs, channel=Channel.ORDERED).seconds
            assert f"The step takes {1e3 * seconds:.1f} ms." in words
        except Deadlock as circle:
            first = str(circle).splitlines()[1].partition(" waits for ")[0]
            assert "never ends" in words and first in words
