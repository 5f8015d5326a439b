import dataclasses

from pytest import mark

from course.predictions import claims
from labkit.measure.records import Provenance, Record, Tier
from tests import printed

CALM = Record("x", "a", {}, [[1.0]], Tier.MEASURED, Provenance.here(), others=0.02)
BUSY = dataclasses.replace(CALM, others=1.3)


@mark.parametrize(
    ("holds", "records", "says"),
    [
        (True, [CALM], claims.HELD),
        (True, [BUSY], claims.NOT_JUDGED),
        (False, [CALM], claims.NOT_HELD),
        ([True] * 3, [BUSY], claims.HELD),
        ([True, True, False], [CALM], claims.NOT_JUDGED),
    ],
)
def test_a_claim_is_one_line_judged_both_ways_and_never_ends_a_lesson(holds, records, says, capsys):
    claims.claim(holds, "twice as long", measured="1.2 times", records=records)
    shown = capsys.readouterr().out
    assert says in shown and "twice as long" in shown and "1.2 times" in shown
    assert shown.count("\n") == 1
    assert (says == claims.NOT_JUDGED) == ("other programs" in shown or "rounds say" in shown)


def test_a_claim_about_a_recording_says_so(capsys):
    elsewhere = dataclasses.replace(CALM, tier=Tier.RECORDED)
    for records, said in (([elsewhere] * 2, True), ([elsewhere, CALM], False), ([], False)):
        claims.claim([True] * 3, "twice as long", measured=2.0, records=records)
        assert ("held, in the recording: " in capsys.readouterr().out) == said


def test_what_tests_read_again_is_what_was_printed(capsys):
    claims.claim(False, "e: (f)", measured=1.0, records=[BUSY])
    claims.claim([True] * 3, "e", measured="2 (of 3)", records=[BUSY])
    claims.claim(True, "six buckets", measured=6, records=[BUSY], exact=True)
    found = printed.claims(f"before\n{capsys.readouterr().out}after")
    assert [one["verdict"] for one in found] == [claims.NOT_JUDGED, claims.HELD, claims.HELD]
    assert [one["expected"] for one in found] == ["e: (f)", "e", "six buckets"]
    assert [one["measured"] for one in found] == ["1", "2 (of 3)", "6"]
