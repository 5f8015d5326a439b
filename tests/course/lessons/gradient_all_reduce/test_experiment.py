import re
import time
from itertools import pairwise

import pytest
import torch

from course import catalogue
from course.lessons.gradient_all_reduce import experiment, pictures, programs
from course.runs import by_case
from labkit import CallLog, launch
from labkit.fabric.fabric import SWITCH
from labkit.measure.records import Tier
from labkit.measure.trace import RankTrace, Tracer
from labkit.show.alt_text import text_of
from tests.course.lessons.cells import Cells

pytestmark = pytest.mark.slow

CELLS = Cells("02_gradient_all_reduce")
RECORDED = by_case(catalogue.experiment(experiment.NAME).recorded())


def test_the_model_has_the_parameters_of_the_thread_under_its_names():
    with torch.device("meta"):
        model = programs.vgg11(width=1, classes=1000)
    nbytes = [parameter.nbytes for parameter in model.parameters()]
    assert (len(nbytes), sum(nbytes)) == (22, 4 * 132_863_336)
    assert round(sum(nbytes[experiment.CLASSIFIER :]) / 1e6, 1) == 494.6
    assert round(max(nbytes) / 1e6) == 411
    names = [name for name, _ in model.named_parameters()]
    last = [f"classifier.{layer}.{part}" for layer in (0, 3, 6) for part in ("weight", "bias")]
    assert names[experiment.CLASSIFIER :] == last


def seen(program, *args):
    """Which calls a program makes, and the spans that it traces or how many times it returns."""
    with CallLog() as log:
        result = program(*args)
    calls = [(call.kind, call.nbytes) for call in log.calls]
    if isinstance(result, RankTrace):
        return calls, sorted((span.step, span.name) for span in result.spans)
    return calls, [len(times) for times in result]


SIZES = (programs.CAP, 1, 32, 2)


def test_what_is_recorded_does_what_the_cells_do():
    shown = CELLS.run("loop", "overlap", "posted")
    arms = {name: arm | {"late": None} for name, arm in programs.BACKWARDS.items()}
    arms["forward"] = {}

    def run(train, as_posted, overlapped):
        climbed = seen(programs.climb, overlapped, *SIZES)
        return [seen(train, arms, 1), seen(as_posted, programs.vgg11, 1), climbed]

    ours = programs.train, programs.as_posted, programs.DuringBackward
    theirs = [shown[program.__name__] for program in ours]
    for of_cells, recorded in launch(lambda: [run(*theirs), run(*ours)], world_size=2):
        assert of_cells == recorded
        assert len({step for step, _ in recorded[-1][1]}) == len(programs.RUNGS)


def fault_on(rank, call):
    fault = programs.Fault(4, 22)
    fault._rank, fault._call = rank, call
    return fault


def test_a_fault_is_drawn_and_kept_secret():
    drawn = {(fault._rank, fault._call) for fault in (programs.Fault(4, 22) for _ in range(2000))}
    assert len(drawn) == 84 and min(call for _, call in drawn) == 1
    fault = fault_on(3, 17)
    assert not set("37") & set(repr(fault))
    assert "Still sealed" in fault.reveal(None, 17)
    for rank, call, right in (3, 5, "right no"), (0, 17, "no right"), (0, 5, "no no"):
        sentence = fault.reveal(rank, call)
        assert (
            " ".join(re.findall(r": (\w+)", sentence)[:2]) == right and "stays sealed" in sentence
        )
        assert set(re.findall(r"\d+", sentence)) == {str(rank), str(call)}, "no figure but its own"
    assert fault.reveal(3, 17) == "It was rank 3, before call 17. You found it at try 4."


@pytest.mark.timed
def test_the_hunt_shows_the_rank_and_the_call():
    def program(fault):
        tracer = Tracer.aligned()
        for _ in range(4):
            for call in range(3):
                fault.strike(call)
                with tracer.collective(str(call)):
                    programs.dist.barrier()
            tracer.next_step()
        return tracer.trace()

    record = experiment.on_hosts(program, fault_on(1, 2))
    by_rank = [experiment.timers(record, rank=rank)[2].seconds for rank in range(3)]
    assert by_rank.index(min(by_rank)) == 1
    assert max(by_rank) - min(by_rank) > 0.5 * programs.PAUSE
    assert len(text_of(pictures.timers(record))) > 30


class Hasty(programs.DuringBackward):
    """Divides and goes on without having waited, while rank 1's sums have yet to begin."""

    def gradient_is_ready(self, number):
        time.sleep(0.02 * programs.dist.get_rank())
        super().gradient_is_ready(number)

    def finish(self):
        for flat in self.flats:
            flat /= programs.dist.get_world_size()
        self.begin()


def test_who_does_not_wait_has_other_gradients():
    with pytest.raises(programs.WrongGradients, match="WRONG GRADIENTS"):
        launch(programs.climb, Hasty, *SIZES, world_size=2)


def test_without_hosts_recorded_runs_are_shown_and_say_so(monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "1")
    assert experiment.on_hosts(programs.train, programs.LATE, case="late").tier is Tier.RECORDED
    assert "RECORDED" in capsys.readouterr().out
    more = programs.LATE | {"rank 9 late": {"late": 9}, "mistyped": {"lat": 0}}
    assert experiment.on_hosts(programs.train, more, 1, case="late").tier is Tier.MEASURED
    lines = capsys.readouterr().out
    assert "'rank 9 late': nobody is late; 9 is none of ranks 0 to 3." in lines
    assert "'mistyped': nobody reads 'lat'; an arm may have late, backwards, thin." in lines
    alone = experiment.small_calls()
    assert alone.tier is Tier.RECORDED and alone.collective == "all_reduce"
    assert experiment.on_hosts(lambda: Tracer.aligned().trace(), case=None).tier is Tier.MEASURED
    assert "loopback" in capsys.readouterr().out


def test_bars_stand_side_by_side_and_each_way_round_the_classifiers_calls_have_their_field():
    calls = experiment.timers(RECORDED["late"])
    runs = {"forward": calls, "backwards": calls[::-1], "again": calls}
    ax = pictures.by_call(runs, RECORDED["late"])
    edges = [(b.get_x(), b.get_x() + b.get_width()) for kind in ax.containers[::2] for b in kind]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(edges)))
    fields = [patch.get_x() for patch in ax.patches if patch.get_alpha() == 0.12]
    assert sorted(fields) == [-0.5, experiment.CLASSIFIER - 0.5]


def test_the_recording_has_every_case_and_its_pictures_have_words():
    assert set(experiment.CASES) <= set(RECORDED)
    records = [*RECORDED.values()]
    drawn = pictures.theirs_and_ours(records), pictures.draw(records)
    assert all(len(text_of(x)) > 30 for x in (*drawn, pictures.rungs(RECORDED["rungs"])))
