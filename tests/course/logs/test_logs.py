"""What nccl-tests of many versions prints, whole and damaged."""

import contextlib
import gzip
import json
import random
import re
import time

import pytest
from pytest import approx

from course.logs import logs
from course.logs.nccl_tests import MAKING, MOVING
from labkit.measure.records import Tier

# An excerpt (the first two and the last size of each test) of a real log: alltoall and sendrecv
# between two hosts. Source: github.com/xxrjun/nccl-tests-cluster, commit 455de4f,
# benchmarks/example-cluster00/.../nccl_N2_G1_cnode2-001_cnode2-002.log, Apache-2.0.
REAL = """\
# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: alltoall_perf
# nThread 1 nGpus 1 minBytes 33554432 maxBytes 17179869184 step: 2(factor) warmup iters: 5 \
iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 440010 on cnode2-001 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 381003 on cnode2-002 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
    33554432       2097152    double    none      -1  1282.93   26.15   13.08       0  1266.72   26.49   13.24    N/A
    67108864       4194304    double    none      -1  2507.48   26.76   13.38       0  2506.70   26.77   13.39    N/A
 17179869184    1073741824    double    none      -1   635876   27.02   13.51       0   631396   27.21   13.60    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 13.4689 
#
# Collective test concluded: alltoall_perf

# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: sendrecv_perf
# nThread 1 nGpus 1 minBytes 33554432 maxBytes 17179869184 step: 2(factor) warmup iters: 5 \
iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 440651 on cnode2-001 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 381706 on cnode2-002 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
    33554432       4194304    double     sum      -1  2513.89   13.35   13.35       0  2504.26   13.40   13.40    N/A
 17179869184    2147483648    double     sum      -1  1263724   13.59   13.59       0  1262569   13.61   13.61    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 13.5405 
#
# Collective test concluded: sendrecv_perf
"""  # noqa: E501, W291

# The rest is written for these tests, in the format of the version that it names.
NAMES = "#       size         count      type   redop    root     time   algbw   busbw"
HEADER = f"{NAMES} #wrong     time   algbw   busbw #wrong\n"
V2_13 = f"""\
# nThread 1 nGpus 4 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 \
agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4242 on   gpu-box device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   4242 on   gpu-box device  1 [0x46] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid   4242 on   gpu-box device  2 [0x85] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid   4242 on   gpu-box device  3 [0xc7] NVIDIA A100-SXM4-40GB
#
#                                                              out-of-place                       in-place
{HEADER}\
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     9.00    0.00    0.00      0     9.02    0.00    0.00      0
        1024           256     float     sum      -1    20.48    0.05    0.07      0    20.00    0.05    0.08      0
     1048576        262144     float     sum      -1    64.00   16.38   24.58      0    65.54   16.00   24.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.1
#
"""  # noqa: E501
PLACE = "     time   algbw   busbw  error"
V2_0 = {
    "all_reduce": f"size         count    type   redop{PLACE}{PLACE}",
    "all_gather": f"size         count    type{PLACE}{PLACE}",
    "broadcast": f"size         count    type    root{PLACE}{PLACE}",
}
V2_0_ROWS = {
    "all_reduce": ("float     sum", 24.58),
    "all_gather": ("float", 12.29),
    "broadcast": ("float       0", 16.38),
}
FIGURES = "    64.00   16.38   {busbw}  1e-07    64.00   16.38   {busbw}  0e+00"


def read(tmp_path, text, name="some.log"):
    path = tmp_path / name
    path.write_text(text)
    return logs.read(path)


def facts(log):
    return [(r.collective, r.nbytes, r.params["in_place"], rounded(r)) for r in log.records]


def rounded(record):
    return [round(seconds, 9) for seconds in record.seconds]


def test_a_real_log_of_two_tests(tmp_path):
    log = read(tmp_path, REAL)
    assert log.problems == []
    assert len(log.records) == 2 * 3 + 2 * 2
    first = log.records[0]
    assert first.case == "all_to_all, 2 x 1, 32 MiB"
    assert first.tier is Tier.RECORDED
    assert (first.seconds, first.nbytes, first.world_size) == ([1282.93e-6], 33554432, 2)
    assert first.busbw == approx(13.08e9, rel=1e-3)
    assert first.params == {
        "hosts": 2, "gpus_per_host": 1, "world_size": 2, "tests": "2.17.6", "warmup": 5,
        "iters": 20, "dtype": "double", "redop": "none", "in_place": False,
    }  # fmt: skip
    assert first.values["wrong"] == 0 and log.records[1].values["wrong"] is None
    assert first.values["slots"] == ["0000:1b:00"]
    assert first.values["row"] == "some.log, line 12"
    assert first.provenance.nodes == ((0,), (1,))
    assert str(first.provenance) == "2 nodes, the first 1 x NVIDIA H100 80GB HBM3, NCCL 2.28.7"
    assert first.provenance.command == "alltoall_perf"
    assert log.records[-1].case == "send, 2 x 1, 16 GiB, in place"
    assert log.records[-1].busbw == approx(13.61e9, rel=1e-3)


def test_version_2_13_says_no_name_and_the_ratio_of_its_bandwidths_tells(tmp_path):
    log = read(tmp_path, V2_13)
    assert log.problems == []
    assert facts(log) == [
        ("all_reduce", 1024, False, [20.48e-6]), ("all_reduce", 1024, True, [20e-6]),
        ("all_reduce", 1048576, False, [64e-6]), ("all_reduce", 1048576, True, [65.54e-6]),
    ]  # fmt: skip
    assert log.records[0].params["gpus_per_host"] == 4


@pytest.mark.parametrize("collective", V2_0)
def test_version_2_0_has_columns_by_collective(tmp_path, collective):
    about, busbw = V2_0_ROWS[collective]
    devices = re.sub(r"Group  0 ", "", V2_13[: V2_13.index("#\n#    ")])
    rows = f"# {V2_0[collective]}\n 1048576 262144 {about} {FIGURES.format(busbw=busbw)}\n"
    log = read(tmp_path, devices + rows + "# Avg bus bandwidth : 1\n", f"{collective}.txt")
    assert log.problems == []
    assert facts(log) == [(collective, 2**20, place, [64e-6]) for place in (False, True)]
    assert log.records[0].params.get("root") == (0 if collective == "broadcast" else None)


def test_mpirun_puts_its_mark_before_lines_and_into_them_and_nccl_speaks_in_between(tmp_path):
    tag = "[1,0]<stdout>:"
    text = "mpirun -x NCCL_ALGO=Ring -x LD_LIBRARY_PATH=/home/me/lib all_reduce_perf -b 8 -g 1\n"
    text += "".join(tag + line for line in V2_13[: V2_13.index("           0  ")].splitlines(True))
    text += f"{tag}10.1.2.3:21:27 [0] NCCL INFO NCCL version 2.12.7+cuda11.4\n"
    text += "[1,1]<stdout>:box:22:28 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via P2P\n"
    text += f"{tag}box:21:27 [0] NCCL INFO Using network AWS Libfabric\n"
    text += f"{tag}box:21:27 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to LOC.\n"
    text += f"{tag}  1024  256  float  sum  -1box:21:27 [0] NCCL INFO Launch\n"
    text += f"{tag}box:21:27 [0] NCCL INFO Launch mode Parallel\n"
    text += f"{tag}    20.48    0.05    0.07      0    20.00    0.05    0.08      0\n"
    text += f"{tag}  1048576  262144  float  sum  -1{tag}    64.00   16.38   24.58      0"
    text += f"{tag}    65.54   16.00   24.00      0\n{tag}# Avg bus bandwidth    : 12\n"
    log = read(tmp_path, text)
    assert log.problems == []
    assert [(n, s) for _, n, _, s in facts(log)] == [
        (1024, [20.48e-6]), (1024, [20e-6]), (2**20, [64e-6]), (2**20, [65.54e-6])
    ]  # fmt: skip
    assert log.records[0].provenance.backend == "NCCL 2.12.7"
    assert log.records[0].params["network"] == "AWS Libfabric"
    assert log.records[0].params["settings"] == "NCCL_ALGO=Ring NCCL_P2P_LEVEL=LOC"
    assert "/home/me" not in repr(log.records)


def test_slurm_numbers_the_lines_and_may_mix_two_tests(tmp_path):
    one, other = V2_13.splitlines(True), V2_13.replace(" 64.00", " 32.00").splitlines(True)
    mixed = "".join(f"0: {a}4: {b}" for a, b in zip(one, other, strict=True))
    log = read(tmp_path, mixed)
    large = [rounded(record) for record in log.records if record.nbytes == 2**20]
    assert [64e-6] in large and [32e-6] in large, "the same test twice: a record of each"


@pytest.mark.parametrize(
    "names, row, seconds",
    [
        (  # 2.18: a timestamp at the end
            f"{NAMES}  #wrong     time   algbw   busbw  #wrong           timestamp\n",
            "     0    64.00   16.38   24.58     N/A  2026-01-28 01:07:02",
            (64e-6, 64e-6),
        ),
        (  # 2.19: statistics per iteration
            f"{NAMES}  #wrong    i_min    i_max    i_p99    i_cv%     time   algbw   busbw  #wrong"
            "    i_min    i_max    i_p99    i_cv%\n",
            "     0    60.00    70.00    69.00     2.50    65.00   16.13   24.20     N/A"
            "    60.00    70.00    69.00     2.50",
            (64e-6, 65e-6),
        ),
        (  # -C 1: time of the CPU
            f"{NAMES.replace('time', 'cputime')}  #wrong  cputime   algbw   busbw  #wrong\n",
            "     0    66.00   15.89   23.83     N/A",
            (64e-6, 66e-6),
        ),
    ],
)
def test_later_versions_have_more_columns(tmp_path, names, row, seconds):
    begin, end = V2_13.split(HEADER)
    line = f"     1048576        262144     float     sum      -1    64.00   16.38   24.58  {row}\n"
    log = read(tmp_path, begin + names + line + end[end.index("# Out") :])
    assert log.problems == []
    assert tuple(s for _, _, _, (s,) in facts(log)) == seconds


def test_rccl_and_a_list_of_devices_that_is_cut(tmp_path):
    text = V2_13.replace("NVIDIA A100-SXM4-40GB", "AMD Instinct MI300X").replace(
        "#  Rank  2", "...\nRCCL version 2.21.5+hip6.3\n#  Rank  2"
    )
    log = read(tmp_path, text)
    assert log.records[0].provenance.backend == "RCCL 2.21.5"
    first = "# rccl-tests version 2.17.9-x:f22 rccl-headers=22803 rccl-library=22803\n"
    assert read(tmp_path, first + V2_13).records[0].provenance.backend == "RCCL 2.28.3"
    later = first + V2_13.replace("#  Rank  2", "RCCL version : 2.28.4-gfx1151-rccl:a1\n#  Rank  2")
    assert read(tmp_path, later).records[0].provenance.backend == "RCCL 2.28.4"
    older = V2_13.replace("# Using", "rccl-tests: Version develop:5272cd1\n# Using")
    assert read(tmp_path, older).records[0].provenance.backend == "RCCL"
    assert (log.records[0].world_size, log.records[0].params.get("hosts")) == (4, None)
    assert log.problems == [
        "some.log, line 16: no full list of ranks; 4 follow from busbw / algbw = 1.501"
    ]


@pytest.mark.parametrize(
    "old, new, says, kept",
    [
        (r"24\.00[\s\S]*", "", "line 14: cut short: 11 of 13 columns", 3),
        (r"# Out[\s\S]*", "", "line 14: all_reduce_perf ends here without", 4),
        ("64.00   16.38   24.58", "N/A  N/A  N/A", "line 14: no figures: N/A N/A N/A 0", 3),
        ("24.58      0", "24.58     12", "line 14: 12 wrong elements", 4),
        (re.escape(HEADER), "", "line 11: a row without a header before it", 4),
        ("24.58", "39.00", "14: busbw 39 GB/s is printed, but all_reduce on 4 ranks makes 24.6", 4),
        (r"#\n#    [\s\S]*", "box: Test NCCL failure c.cu:9 'no'", "line 8: a test failed: box", 0),
        (r"        1024[\s\S]*", "", "line 12: a test began and printed no figures", 0),
        (r"#  Rank  [123].*\n", "", "one rank moves nothing.*MPI=1", 4),
        (r"(16\.\d\d)   24\.\d\d", r"\1   \1", "nothing says which collective this is", 4),
    ],
)
def test_what_is_damaged_is_told_with_its_line_and_the_rest_is_kept(tmp_path, old, new, says, kept):
    log = read(tmp_path, re.sub(old, new, V2_13))
    assert re.search(says, "\n".join(log.problems)), log.problems
    assert len(log.records) == kept


def test_a_name_that_contradicts_the_figures_is_found_out(tmp_path):
    log = read(tmp_path, V2_13, "all_gather_4gpus.log")
    assert "is it another collective?" in log.problems[0]
    assert len(log.problems) == 1 and all(record.values["row"] for record in log.records)


def test_a_repeated_test_adds_records(tmp_path):
    log = read(tmp_path, V2_13 + V2_13.replace(" 64.00", " 68.00"))
    seconds = [rounded(record) for record in log.records if record.nbytes == 2**20]
    assert seconds == [[64e-6], [65.54e-6], [68e-6], [65.54e-6]]


def test_no_damage_makes_it_fail(tmp_path):
    chance, text = random.Random(7), REAL + V2_13
    for _ in range(150):
        begin, length = chance.randrange(len(text)), chance.choice([1, 5, 80, 2000])
        junk = "".join(chance.choices('#:{}[]",-1 9.aN/\n\t\0é', k=chance.choice([0, 1, 9])))
        with contextlib.suppress(logs.UnknownLog):
            read(tmp_path, text[:begin] + junk + text[begin + length :])


@pytest.mark.slow
def test_a_large_file_is_read_in_proportion_to_its_size(tmp_path):
    noise = "box:21:27 [0] NCCL INFO Channel 07/0 : 3[3] -> 2[2] via P2P/CUMEM/read\n" * 60
    block = noise + REAL
    seconds = {}
    for times in (50, 800):
        path = tmp_path / f"{times}.log"
        path.write_text(block * times)
        start = time.thread_time()
        log = logs.read(path)
        seconds[times] = time.thread_time() - start
        assert (log.problems, len(log.records)) == ([], 10 * times)
    assert seconds[800] < 4 * 16 * seconds[50], "sixteen times the lines; a square would be 256"


def test_an_excerpt_without_header_and_without_in_place_figures(tmp_path):
    rows = "  8589934592  2147483648     float     sum      -1    20299  423.16  834.57      0\n"
    log = read(tmp_path, rows, "all_reduce_b200.txt")
    assert facts(log) == [("all_reduce", 2**33, False, [20299e-6])]
    assert "columns" not in str(log.problems)


def test_what_gzip_has_compressed_is_read_and_where_it_ends_too_early_a_line_says_so(tmp_path):
    path = tmp_path / "all_reduce.log.gz"
    text = "".join(f"# {random.Random(i).random()}\n" for i in range(999))
    path.write_bytes(whole := gzip.compress((V2_13 + text).encode()))
    assert len(logs.read(path).records) == 4 and logs.read(path).problems == []
    path.write_bytes(whole[:-200])
    log = logs.read(path)
    assert len(log.records) == 4 and log.problems[0].startswith("all_reduce.log.gz: cut short: ")
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(as_json().encode())[:-20])
    with pytest.raises(logs.UnknownLog, match=r"x.json.gz is empty, or cut short"):
        logs.read(tmp_path / "x.json.gz")


@pytest.mark.parametrize("junk", ["7 ", "NCCL INFO Channel 7 : ", "a.b_perf NCCL_ALGO=Ring "])
def test_a_line_of_thirty_megabytes_takes_seconds(tmp_path, junk):
    start = time.thread_time()
    log = read(tmp_path, V2_13 + junk * (30_000_000 // len(junk)))
    assert len(log.records) == 4 and time.thread_time() - start < 3, "0.2 s here"


def test_a_file_that_is_none_of_these_is_refused(tmp_path):
    with pytest.raises(
        logs.UnknownLog, match=r"notes.txt holds no test of nccl-tests. It begins: 'Dear all,'"
    ):
        read(tmp_path, "Dear all,\nthe cluster is slow.\n", "notes.txt")
    with pytest.raises(logs.UnknownLog, match="is empty"):
        read(tmp_path, "")


# As nccl-tests' src/util.cu writes it, JSON_FILE_VERSION 3; figures of V2_13 above.
def as_json(**changes):
    devices = [
        {"rank": i, "group": 0, "pid": 4242, "hostname": "gpu-box.lan", "device": i,
         "device_hex": f"0000:{i:02x}:00", "device_info": "NVIDIA A100-SXM4-40GB"}
        for i in range(4)
    ]  # fmt: skip
    place = {"time": 64.0, "alg_bw": 16.38, "bus_bw": 24.58, "nwrong": 0.0}
    slower = {"time": 65.54, "alg_bw": 16.0, "bus_bw": 24.0, "nwrong": None}
    row = {"size": 2**20, "count": 2**18, "type": "float", "redop": "sum", "root": "    -1",
           "out_of_place": place, "in_place": slower,
           "actual_iterations": 20, "experiment_name": "AllReduce"}  # fmt: skip
    document = {
        "version": 3, "start_time": "2026-06-11 12:00:00", "args": ["./build/all_reduce_perf"],
        "env": ["HOME=/home/me", "SECRET_TOKEN=abc", "NCCL_ALGO=Ring"], "nccl_version": 22902,
        "config": {"warmup_iters": 1, "iterations": 20, "devices": devices}, "results": [row],
        "errors": [], "end_time": "2026-06-11 12:01:00",
    }  # fmt: skip
    return json.dumps(document | changes)


def test_nccl_tests_own_json_is_read_without_the_users_environment(tmp_path):
    log = read(tmp_path, as_json(), "out.json")
    assert log.problems == []
    assert facts(log) == [
        ("all_reduce", 2**20, False, [64e-6]), ("all_reduce", 2**20, True, [65.54e-6])
    ]  # fmt: skip
    first, second = log.records
    assert first.params["settings"] == "NCCL_ALGO=Ring" and first.params["iters"] == 20
    assert first.values["hosts"] == ["gpu-box.lan"] and first.values["row"] == "out.json"
    assert first.provenance.backend == "NCCL 2.29.2"
    assert (first.values["wrong"], second.values["wrong"]) == (0.0, None)
    assert "SECRET" not in repr(log) and "/home" not in repr(log)
    failed = read(tmp_path, as_json(results=[], errors=["remote process exited"]), "out.json")
    assert (failed.records, failed.failures[0].phase) == ([], MOVING)
    assert failed.problems == ["out.json: all_reduce_perf failed: remote process exited"]


@pytest.mark.parametrize(
    "text", ['{"a": 1}', as_json()[:-200], as_json(results=[3]), as_json(env=7), "{" * 100_000]
)
def test_another_json_or_one_that_is_cut_is_refused_in_one_line(tmp_path, text):
    with pytest.raises(logs.UnknownLog) as caught:
        read(tmp_path, text, "x.json")
    assert "x.json is no log that can be read" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_failure_says_how_far_the_test_had_come(tmp_path):
    devices, header = V2_13[: V2_13.index("#\n#    ")], V2_13[: V2_13.index("           0  ")]
    died = "box: Test NCCL failure common.cu:401 'remote process exited'\n"
    rows = V2_13[: V2_13.index("     1048576  ")]
    phases = [read(tmp_path, text + died).failures[0].phase for text in (devices, header, rows)]
    assert phases == [MAKING, MOVING, "after 1024 bytes were done"]
