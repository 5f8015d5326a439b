import dataclasses
import json

from pytest import mark

from course import claims
from labkit.measure.records import Provenance, Record, Tier

CALM = Record("x", "a", {}, [[1.0]], Tier.MEASURED, Provenance.here(), others=0.02)
BUSY = dataclasses.replace(CALM, others=1.3)


@mark.parametrize(
    ("holds", "records", "says"),
    [
        (True, [BUSY], claims.HELD),
        (False, [CALM], claims.NOT_HELD),
        (False, [CALM, BUSY], claims.NOT_JUDGED),
    ],
)
def test_a_claim_is_one_line_and_never_ends_a_lesson(holds, records, says, capsys):
    claims.claim(holds, "twice as long", measured="1.2 times", records=records)
    shown = capsys.readouterr().out
    assert says in shown and "twice as long" in shown and "1.2 times" in shown
    assert shown.count("\n") == 1


def test_each_claim_leaves_a_line_for_tests(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_CLAIMS", str(tmp_path / "claims"))
    claims.claim(False, "e", measured=1.0, records=[BUSY])
    claims.claim(True, "e", measured=1.0, records=[BUSY])
    lines = map(json.loads, (tmp_path / "claims").read_text().splitlines())
    assert [line["verdict"] for line in lines] == [claims.NOT_JUDGED, claims.HELD]


def test_without_records_the_cells_since_the_last_claims_are_looked_at():
    watch = claims._Watch()
    watch.cells = [(2.0, 0.9), (3.0, 0.1)]
    assert watch.others() == 0.9
    watch.begin_cell(None)  # the next cell: what was claimed of is over
    watch.cells = [(0.01, 5.0)]
    assert watch.others() is None, "too short to tell"
