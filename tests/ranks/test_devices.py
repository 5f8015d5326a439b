"""Where a rank computes. Without a GPU: torch's words about GPUs are given, labkit's are tested."""

from unittest import mock

import torch
import torch.distributed as dist
from pytest import mark, raises

from labkit import launch
from labkit.ranks import devices
from tests.ranks.nodes import ROOT

TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040).\nPlease update."


def test_outside_a_rank_it_is_the_cpu_and_a_line_says_why(capsys):
    assert devices.device() == torch.device("cpu")
    [line] = capsys.readouterr().err.splitlines()
    assert "default process group" in line and "launch" in line


def test_one_gpu_visible_to_each_of_eight_ranks_is_told_as_the_page_of_clusters_quotes_it(
    monkeypatch, capsys
):
    monkeypatch.setattr(devices, "_noted", False)
    monkeypatch.setenv("RANK", "0")
    assert devices.usual(1, 8) == "gloo"
    page = (ROOT / "docs/cluster.md").read_text()
    quoted = next(line for line in page.splitlines() if line.startswith("labkit: "))
    assert capsys.readouterr().err.startswith(quoted)


@mark.parametrize(("local_rank", "gpus", "number"), [(0, 2, 0), (1, 2, 1), (3, 2, 1), (5, 1, 0)])
@mark.parametrize("backend", ["nccl", devices.BOTH])
def test_where_nccl_carries_it_is_this_ranks_gpu(monkeypatch, local_rank, gpus, number, backend):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend_config", lambda: backend)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    assert devices.device() == torch.device("cuda", number)


def test_a_gpu_that_cannot_be_used_is_told_and_the_cpu_is_used(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "init", mock.Mock(side_effect=RuntimeError(TOO_OLD)))
    monkeypatch.setenv("RANK", "0")
    assert devices.claim("gloo", 0) == devices.claim(devices.BOTH, 0) == "gloo"
    [line] = capsys.readouterr().err.splitlines()
    assert "too old (found version 11040)." in line
    with raises(RuntimeError, match="too old"):
        devices.claim("nccl", 0)


def test_ranks_of_a_launch_compute_on_the_cpu_where_no_gpu_can_be_used(monkeypatch, capfd):
    def program():
        with devices.device():
            x = torch.ones(2)
        dist.all_reduce(x)
        return x.tolist(), str(x.device)

    monkeypatch.setattr("labkit.ranks.machine.gpu_count", lambda: 2)  # as NVML counts them
    assert launch(program, world_size=2) == [([2.0, 2.0], "cpu")] * 2
    told = [line for line in capfd.readouterr().err.splitlines() if "labkit: the GPUs" in line]
    assert len(told) == 1
