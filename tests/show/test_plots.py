import gc
import weakref

import numpy as np
from PIL import Image
from pytest import mark

from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.show import alt_text, plots


def sample():
    ax = plots.new_axes("A title", x="Pairs", y="Time", yunit="µs")
    plots.line(ax, [1, 2, 4], [10.0, 20.0, 40.5], low=[9, 18, 30], high=[12, 23, 50], label="free")
    return ax


def test_series_differ_in_colour_marker_dash_and_hatch():
    for part in ("color", "marker", "linestyle", "hatch"):
        assert len({str(getattr(look, part)) for look in plots.STYLES}) == len(plots.STYLES)


def test_a_picture_carries_its_description_and_the_table_of_what_was_drawn(tmp_path):
    ax = sample()
    (table,) = alt_text.tables_of(ax)
    assert table.columns == ["Pairs", "Time [µs]", "10th percentile", "90th percentile"]
    assert table.title == "free" and table.rows[-1] == (4.0, 40.5, 30.0, 50.0)
    assert alt_text.text_of(ax) == "A title (Time [µs] against Pairs)", "nobody described it yet"
    plots.describe(ax, 'Time "doubles"\n  with the pairs.')
    page = alt_text.to_html(ax)
    assert 'alt="Time &#34;doubles&#34; with the pairs."' in page
    assert '<td class="figure">40.5</td>' in page and ">Pairs</th>" in page
    plots.describe(ax, "x", table=Table(["a"], [[1]]))
    assert alt_text.tables_of(ax) == [Table(["a"], [[1]], "A title")], "the one given counts"
    with Image.open(plots.save(ax, tmp_path / "a" / "b.png")) as picture:
        assert picture.text["Description"].endswith("with the pairs. x")


def test_a_figure_that_nobody_holds_is_freed():
    kept = weakref.ref(sample().figure)
    gc.collect()
    assert kept() is None


@mark.parametrize("busy", [0.1, 1.3])
def test_a_stamp_says_what_others_used(busy):
    measured = {"samples": [[1.0]], "tier": Tier.MEASURED, "provenance": Provenance.here()}
    made = [Record("e", f"{used}", {}, **measured, others=used) for used in (0.1, busy, None)]
    said = plots.ladder(made, title="Calls").figure.get_supxlabel().replace("\n", " ")
    assert ("used up to 1.3 CPUs" in said) == ("other programs" in said) == (busy > 1)


def test_the_stamp_tells_tiers_and_notes_and_each_panels_own():
    ax = plots.stamp(sample(), [Tier.MEASURED, Tier.MODELLED], note="alpha = 20 µs")
    assert ax.figure.get_supxlabel() == "MEASURED + MODELLED · alpha = 20 µs"
    _, (left, right) = plots.new_figure(1, 2)
    plots.stamp(plots.new_axes("L", ax=left), "MEASURED")
    plots.stamp(plots.new_axes("R", ax=right), "EMULATED")
    assert left.figure.get_supxlabel() == "L: MEASURED\nR: EMULATED"


def test_bars_write_their_figures_and_keep_their_order():
    axes = plots.new_axes(x="Time")
    ax = plots.bars(axes, ["a", "b"], [1354.2, 14.0], low=[1, 13], high=[1500, 15])
    assert [text.get_text() for text in ax.texts] == ["1,350", "14"]
    top, bottom = (label.get_position()[1] for label in ax.get_yticklabels())
    assert ax.transData.transform((0, top))[1] > ax.transData.transform((0, bottom))[1]


def test_a_matrix_writes_every_figure_but_nan():
    ax = plots.matrix(plots.new_axes(), [[np.nan, 1.5], [0, np.nan]], rows="01", columns="01")
    assert [text.get_text() for text in ax.texts] == ["1.5", "0"]


def test_byte_ticks_are_powers_of_two():
    ax = plots.new_axes(x="Size", xunit="bytes", xscale="log")
    plots.line(ax, [4, 2**26], [1, 2])
    assert all(float(np.log2(value)).is_integer() for value in ax.get_xticks())
    assert {"1 MiB", "2 MiB", "4 MiB"} & {plots._as_bytes(value) for value in ax.get_xticks()}
