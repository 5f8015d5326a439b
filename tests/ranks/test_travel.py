"""Errors of labkit go from process to process with all that they say."""

import multiprocessing
import os
import pickle
import time
from concurrent.futures import ProcessPoolExecutor
from types import CodeType

import cloudpickle
import pytest
import torch.distributed as dist

from labkit import FabricUnavailable, LaunchError, RankDied, launch
from labkit.measure.sched import SchedUnavailable
from labkit.measure.wire import WireMismatch, WireUnavailable
from labkit.ranks.parcel import Parcel

ERRORS = (
    FabricUnavailable("no namespaces", "Allow them."),
    WireMismatch("they do not add up"),
    WireUnavailable("no counts"),
    SchedUnavailable("no counters"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_each_is_the_same_afterwards(error):
    error.add_note("[labkit] a note")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.args == error.args
    assert vars(again) == vars(error) and again.__notes__ == ["[labkit] a note"]


def test_a_failed_launch_travels_as_its_text():
    error = RankDied(1, 3, -9, ["last words"])
    error.results[0] = lambda: 0
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is LaunchError and str(again) == str(error)


def test_code_keeps_the_name_of_its_file_whatever_cloudpickle_does(monkeypatch):
    """From 3.1.3 on its name is <dynamic-code>, which has no lines to show."""
    reducers = cloudpickle.Pickler.dispatch_table

    def forgetful(code):
        return reducers[CodeType](code.replace(co_filename="<dynamic-code>"))

    monkeypatch.setattr(cloudpickle.Pickler, "dispatch_table", reducers | {CodeType: forgetful})
    function = Parcel.of(lambda: lambda: 0).load()
    inner = function().__code__
    assert {function.__code__.co_filename, inner.co_filename} == {__file__}


def die():
    if dist.get_rank() == 1:
        time.sleep(0.3)
        os._exit(3)
    return lambda: "cannot be pickled by others"


@pytest.mark.slow
def test_they_come_out_of_a_pool_of_processes():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        with pytest.raises(LaunchError, match="rank 1 of 2 exited with status 3"):
            pool.submit(launch, die, world_size=2).result(timeout=60)
        with pytest.raises(LaunchError, match="2 of 2 ranks had not finished"):
            pool.submit(launch, time.sleep, 60, world_size=2, timeout=0.5).result(timeout=60)
        assert pool.submit(abs, -1).result(timeout=60) == 1, "the pool has not broken"
