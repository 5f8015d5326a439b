import dataclasses
import re

from course.predictions import claims
from labkit.measure.records import Provenance, Record, Tier
from tests import printed

CALM = Record("x", "a", {}, [[1.0]], Tier.MEASURED, Provenance.here(), others=0.02)
BUSY = dataclasses.replace(CALM, others=1.3)


def test_claims_are_a_line_each_judged_both_ways_and_are_read_again_as_they_were_printed(capsys):
    cases = [
        (True, CALM, claims.HELD, []),
        (True, BUSY, claims.NOT_JUDGED, ["other programs"]),
        (False, CALM, claims.NOT_HELD, []),
        ([True] * 3, BUSY, claims.HELD, []),
        ([True, True, False], CALM, claims.NOT_JUDGED, ["of 3 rounds"]),
    ]
    for holds, record, *_ in cases:
        claims.claim(holds, "e: (f)", measured="2 (of 3)", records=[record])
    claims.claim(True, "six buckets", measured=6.0, records=[BUSY], exact=True)
    shown = capsys.readouterr().out
    lines = printed.claims(f"before\n{shown}after")
    verdicts = [*(verdict for _, _, verdict, _ in cases), claims.HELD]
    assert [claim["verdict"] for claim in lines] == verdicts
    said = [(claim["expected"], claim["measured"]) for claim in lines]
    assert said == [("e: (f)", "2 (of 3)")] * len(cases) + [("six buckets", "6")]
    reasons = [re.findall("other programs|of 3 rounds", line) for line in shown.splitlines()]
    assert reasons == [*(why for *_, why in cases), []]


def test_where_others_have_the_cpus_a_ratio_of_times_is_neither_held_nor_refuted(capsys):
    crowded = dataclasses.replace(CALM, others=19.0)
    for ratio, verdict in ((False, claims.NOT_HELD), (True, claims.NOT_JUDGED)):
        claims.claim([False] * 3, "shorter", measured="9 %", records=[crowded], ratio=ratio)
        (line,) = printed.claims(capsys.readouterr().out)
        assert line["verdict"] == verdict


def test_a_claim_about_a_recording_says_so(capsys):
    elsewhere = dataclasses.replace(CALM, tier=Tier.RECORDED)
    for records, said in (([elsewhere] * 2, True), ([elsewhere, CALM], False), ([], False)):
        claims.claim([True] * 3, "twice as long", measured=2.0, records=records)
        assert ("held, in the recording: " in capsys.readouterr().out) == said
