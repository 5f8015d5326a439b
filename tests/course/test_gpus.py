"""All that is measured on one GPU, run with tensors on the CPU: shapes, cases, what arrives."""

import pytest

from course import gpus
from labkit.measure.records import load, save

TINY = {
    "copies": lambda: gpus.copies((2, 3), n=8, iters=2, device="cpu"),
    "directions": lambda: gpus.directions(4096, iters=2, device="cpu"),
    "launches": lambda: gpus.launches(4 * 4 * gpus.PIECES, iters=2, device="cpu"),
    "beside": lambda: gpus.beside(8, products=2, nbytes=64, copies=1, iters=2, device="cpu"),
    "lent_memory": lambda: gpus.lent_memory(4096, iters=2, device="cpu"),
}
CASES = {"copies": 8, "directions": 5, "launches": 6, "beside": 7, "lent_memory": 1}


@pytest.mark.parametrize("name", TINY)
def test_every_case_is_timed_and_kept(name, tmp_path):
    found = TINY[name]()
    assert len({record.case for record in found}) == len(found) == CASES[name]
    for record in found:
        assert len(record.seconds) == 2 and min(record.seconds) > 0
        assert record.params.keys() >= {"device", "torch", "cuda", "nccl"}
        assert record.provenance.backend == "cpu"
    assert load(save(found, tmp_path / "gpu.json")) == found


def test_python_is_held_for_a_part_of_the_step():
    for record in TINY["copies"]():
        assert 0 < record.values["held"] < max(record.seconds)


def test_a_borrower_that_writes_elsewhere_is_found_out(monkeypatch):
    monkeypatch.setattr(gpus, "launch", lambda *args, **options: [[0.1], False])
    with pytest.raises(AssertionError, match="does not see"):
        TINY["lent_memory"]()
