"""Whether the recording holds the worlds in which each suspect is guilty."""

import pytest

from course.lessons.pipeline_p2p import experiment
from labkit.measure.records import load

_CASES = {record.case for record in load(experiment.RECORDING, recorded=True)}
MISSING = sorted({str(case) for case in experiment.EVERY} - _CASES)
needs_worlds = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{len(MISSING)} cases are not recorded: python -m course record pipeline-p2p",
)
