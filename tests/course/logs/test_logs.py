"""What nccl-tests of many versions prints, whole and damaged."""

import contextlib
import random
import re
import time
from pathlib import Path

import pytest

from course.logs import logs
from course.logs.nccl_tests import MAKING, MOVING
from labkit.measure.records import Tier

HERE = Path(__file__).parent
# An excerpt (the first two and the last size of each test) of a real log: alltoall and sendrecv
# between two hosts. Source: github.com/xxrjun/nccl-tests-cluster, commit 455de4f,
# benchmarks/example-cluster00/.../nccl_N2_G1_cnode2-001_cnode2-002.log, Apache-2.0.
REAL = (HERE / "v2.17.txt").read_text()
# The rest is written for these tests, in the format of the version that it names.
V2_13 = (HERE / "v2.13.txt").read_text()
HEADER = V2_13.splitlines(keepends=True)[9]
NAMES = HEADER.partition(" #wrong")[0]
V2_0 = f"""\
# size         count    type    root{2 * "     time   algbw   busbw  error"}
 1048576      262144   float       0{2 * "    64.00   16.38   16.38  1e-07"}
# Avg bus bandwidth : 1
"""


def read(tmp_path, text, name="some.log"):
    path = tmp_path / name
    path.write_text(text)
    return logs.read(path)


def facts(log):
    return [
        (r.collective, r.nbytes, r.params["in_place"], [round(seconds, 9) for seconds in r.seconds])
        for r in log.records
    ]


def test_a_real_log_of_two_tests(tmp_path):
    log = read(tmp_path, REAL)
    assert log.problems == []
    assert len(log.records) == 2 * 3 + 2 * 2
    first = log.records[0]
    assert first.collective == "all_to_all"
    assert first.tier is Tier.RECORDED
    assert (first.seconds, first.nbytes, first.world_size) == ([1282.93e-6], 33554432, 2)
    assert first.busbw == pytest.approx(13.08e9, rel=1e-3)
    assert first.params == {
        "hosts": 2, "gpus_per_host": 1, "world_size": 2, "tests": "2.17.6",
        "dtype": "double", "redop": "none", "in_place": False,
    }  # fmt: skip
    assert first.values["wrong"] == 0 and log.records[1].values["wrong"] is None
    assert first.values["slots"] == ["0000:1b:00"]
    assert first.values["row"] == "some.log, line 12"
    assert first.provenance.nodes == ((0,), (1,))
    assert str(first.provenance) == "2 nodes, the first 1 x NVIDIA H100 80GB HBM3, NCCL 2.28.7"
    assert first.provenance.command == "alltoall_perf"
    assert (log.records[-1].collective, log.records[-1].nbytes) == ("send", 2**34)
    assert log.records[-1].busbw == pytest.approx(13.61e9, rel=1e-3)


def test_version_2_13_says_no_name_and_the_ratio_of_its_bandwidths_tells(tmp_path):
    log = read(tmp_path, V2_13)
    assert log.problems == []
    assert facts(log) == [
        ("all_reduce", 1024, False, [20.48e-6]), ("all_reduce", 1024, True, [20e-6]),
        ("all_reduce", 1048576, False, [64e-6]), ("all_reduce", 1048576, True, [65.54e-6]),
    ]  # fmt: skip
    assert log.records[0].params["gpus_per_host"] == 4


def test_version_2_0_has_columns_by_collective(tmp_path):
    devices = re.sub(r"Group  0 ", "", V2_13[: V2_13.index("#\n#    ")])
    log = read(tmp_path, devices + V2_0, "broadcast.txt")
    assert log.problems == []
    assert facts(log) == [("broadcast", 2**20, place, [64e-6]) for place in (False, True)]


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
    first, second = V2_13.splitlines(True), V2_13.replace(" 64.00", " 32.00").splitlines(True)
    mixed = "".join(f"0: {a}4: {b}" for a, b in zip(first, second, strict=True))
    log = read(tmp_path, mixed)
    large = [seconds for _, nbytes, _, seconds in facts(log) if nbytes == 2**20]
    assert [64e-6] in large and [32e-6] in large, "the same test twice: a record of each"


EACH = "    i_min    i_max    i_p99    i_cv%"


LATER = [
    ("", " timestamp", "64.00   16.38   24.58     N/A  2026-01-28 01:07:02", 64e-6),  # 2.18
    (EACH, EACH, "60 70 69 2.50  65.00  16.13  24.20  N/A  60 70 69 2.50", 65e-6),  # 2.19
]


@pytest.mark.parametrize("each, end, row, in_place", LATER)
def test_later_versions_have_more_columns(tmp_path, each, end, row, in_place):
    head, tail = V2_13.split(HEADER)
    names = f"{NAMES}  #wrong{each}     time   algbw   busbw  #wrong{end}\n"
    line = f"     1048576  262144  float  sum  -1  64.00  16.38  24.58  0  {row}\n"
    log = read(tmp_path, head + names + line + tail[tail.index("# Out") :])
    assert log.problems == []
    assert [seconds for *_, seconds in facts(log)] == [[64e-6], [in_place]]


LIBRARIES = [
    ("RCCL version 2.21.5+hip6.3", "RCCL 2.21.5"),
    ("RCCL version : 2.28.4-gfx1151-rccl:a1", "RCCL 2.28.4"),
    ("# rccl-tests version 2.17.9-x:f22 rccl-headers=22803 rccl-library=22803", "RCCL 2.28.3"),
    ("rccl-tests: Version develop:5272cd1", "RCCL"),
]


@pytest.mark.parametrize("line, library", LIBRARIES)
def test_rccl_says_its_version(tmp_path, line, library):
    log = read(tmp_path, V2_13.replace("# Using", f"{line}\n# Using"))
    assert log.records[0].provenance.backend == library


DAMAGES = [
    (r"24\.00[\s\S]*", "", "line 14: cut short: 11 of 13 columns", 3),
    (r"# Out[\s\S]*", "", "line 14: all_reduce_perf ends here without", 4),
    ("64.00   16.38   24.58", "N/A  N/A  N/A", "line 14: no figures: N/A N/A N/A 0", 3),
    ("24.58      0", "24.58     12", "line 14: 12 wrong elements", 4),
    (re.escape(HEADER), "", "line 11: a row without a header before it", 4),
    ("24.58", "39.00", "14: busbw 39 GB/s is printed, but all_reduce on 4 ranks makes 24.6", 4),
    (r"#\n#    [\s\S]*", "box: Test NCCL failure c.cu:9 'no'", "line 8: a test failed: box", 0),
    (r"        1024[\s\S]*", "", "line 12: a test began and printed no figures", 0),
    (r"#  Rank  [123].*\n", "", "one rank moves nothing.*MPI=1", 4),
    (r"#  Rank .*\n", "", "line 10: no list of ranks; 4 follow from busbw / algbw = 1.501", 4),
    (r"(16\.\d\d)   24\.\d\d", r"\1   \1", "nothing says which collective this is", 4),
]


@pytest.mark.parametrize("old, new, says, kept", DAMAGES)
def test_what_is_damaged_is_told_with_its_line_and_the_rest_is_kept(tmp_path, old, new, says, kept):
    log = read(tmp_path, re.sub(old, new, V2_13))
    assert re.search(says, "\n".join(log.problems)), log.problems
    assert len(log.records) == kept


def test_no_damage_makes_it_fail(tmp_path):
    chance, text = random.Random(7), REAL + V2_13
    for _ in range(150):
        begin, length = chance.randrange(len(text)), chance.choice([1, 5, 80, 2000])
        junk = "".join(chance.choices('#:{}[]",-1 9.aN/\n\t\0é', k=chance.choice([0, 1, 9])))
        with contextlib.suppress(logs.UnknownLog):
            read(tmp_path, text[:begin] + junk + text[begin + length :])


@pytest.mark.slow
def test_a_large_file_is_read_in_proportion_to_its_size(tmp_path):
    noise = "box:21:27 [0] NCCL INFO Channel 07/0 : 3[3] -> 2[2] via P2P/CUMEM/read\n" * 15
    seconds = {}
    for times in (50, 800):
        start = time.thread_time()
        log = read(tmp_path, (noise + REAL) * times)
        seconds[times] = time.thread_time() - start
        assert (log.problems, len(log.records)) == ([], 10 * times)
    assert seconds[800] < 4 * 16 * seconds[50], "sixteen times the lines; a square would be 256"


@pytest.mark.parametrize("junk", ["7 ", "NCCL INFO Channel 7 : ", "a.b_perf NCCL_ALGO=Ring "])
def test_a_line_of_thirty_megabytes_takes_seconds(tmp_path, junk):
    start = time.thread_time()
    log = read(tmp_path, V2_13 + junk * (30_000_000 // len(junk)))
    assert len(log.records) == 4 and time.thread_time() - start < 3, "0.2 s here"


def test_a_file_that_is_none_of_these_is_refused(tmp_path):
    says = r"notes.txt holds no test of nccl-tests. It begins: 'Dear all,'"
    with pytest.raises(logs.UnknownLog, match=says):
        read(tmp_path, "Dear all,\nthe cluster is slow.\n", "notes.txt")
    with pytest.raises(logs.UnknownLog, match="It is empty"):
        read(tmp_path, "")


def test_a_failure_says_how_far_the_test_had_come(tmp_path):
    devices, header = V2_13[: V2_13.index("#\n#    ")], V2_13[: V2_13.index("           0  ")]
    died = "box: Test NCCL failure common.cu:401 'remote process exited'\n"
    rows = V2_13[: V2_13.index("     1048576  ")]
    phases = [read(tmp_path, text + died).failures[0].phase for text in (devices, header, rows)]
    assert phases == [MAKING, MOVING, "after 1024 bytes were done"]
