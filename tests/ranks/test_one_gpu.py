"""Ranks that share a GPU: refused with a reason where it cannot be, and what they are given."""

import json

import pytest
import torch

from labkit.ranks import launcher, one_gpu, rank


@pytest.mark.skipif(torch.cuda.is_available(), reason="says so where there is none")
def test_without_a_gpu_it_says_so():
    assert one_gpu.why_not() == "There is no GPU here."
    with pytest.raises(ValueError, match="share_gpu=True: There is no GPU here"):
        launcher.launch(len, (), world_size=2, share_gpu=True)


@pytest.mark.parametrize(
    ("version", "said"), [((), "has no NCCL"), ((2, 29, 7), r"brings NCCL 2\.29\.7")]
)
def test_an_old_nccl_is_named_with_the_remedy(monkeypatch, version, said):
    monkeypatch.setattr(one_gpu, "gpu_count", lambda: 1)
    monkeypatch.setattr(one_gpu, "nccl_version", lambda: version)
    with pytest.raises(ValueError, match=rf"since NCCL 2\.30; torch .* {said}.*torch 2\.15"):
        launcher.launch(len, (), world_size=2, share_gpu=True)


def test_gloo_and_fabrics_have_no_gpu_to_share():
    with pytest.raises(ValueError, match="is for NCCL"):
        launcher.launch(len, (), world_size=2, backend="gloo", share_gpu=True)


def test_ranks_get_both_backends_the_variables_and_one_gpu(monkeypatch):
    """As far as this goes without a GPU: what would travel to the ranks."""
    jobs = []
    monkeypatch.setattr(one_gpu, "gpu_count", lambda: 4)
    monkeypatch.setattr(one_gpu, "nccl_version", lambda: (2, 30, 7))
    monkeypatch.setattr(launcher, "_run", lambda job, *_: jobs.append(job))
    monkeypatch.setattr(launcher.server, "shared", lambda: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    launcher.launch(len, (), world_size=8, share_gpu=True)
    assert jobs[0].backend == "cpu:gloo,cuda:nccl"
    wanted = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
    assert jobs[0].environment.items() >= (wanted | {"CUDA_VISIBLE_DEVICES": "2"}).items()
    launcher.launch(len, (), world_size=2, backend="gloo")
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in jobs[1].environment


def test_calls_of_nccls_own_recorder_are_told_once_and_in_order(monkeypatch):
    entry = {"profiling_name": "nccl:send 0->1", "time_created_ns": 2}
    earlier = {"profiling_name": "gloo:all_reduce", "time_created_ns": 1}
    dumps = {"_dump_fr_trace_json": [entry, earlier], "_dump_nccl_trace_json": [entry]}
    for name, entries in dumps.items():
        text = json.dumps({"entries": entries})
        monkeypatch.setattr(torch._C._distributed_c10d, name, lambda text=text: text, raising=False)
    assert json.loads(rank.calls())["entries"] == [earlier, entry]
