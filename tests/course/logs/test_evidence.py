"""What logs say for and against the rows of the guide: lines of public logs, and lines made up.

Excerpts, with the names of hosts shortened and addresses replaced, of what their authors published:
github.com/NVIDIA/nccl issues 1405, 1409 and 1814; OFA-Sys/OFA issue 271; NVIDIA/nccl-tests issue
350; an all_gather over two hosts of github.com/odissei-benchmarks/nccl-tests (commit 6df4cb5,
BSD); a run of github.com/argonne-lcf/alcf-nccl-tests (commit 385be33).
"""

from pytest import mark

from course.logs import evidence, logs

LOST = """\
h:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<44206> with \
status=12 opcode=129 len=65536 vendor err 129 (Recv) localGid ::ffff:10.0.0.2
h:984:1357 [4] NCCL INFO transport/net.cc:1298 -> 6
h:984:1357 [4] NCCL INFO proxy.cc:694 -> 6
h:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<44206> with \
status=5 opcode=32656 len=32659 vendor err 249 (Recv) localGid ::ffff:10.0.0.2
"""  # NVIDIA/nccl 1814
TOPOLOGY = """\
n013:101855:101885 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_2:1/IB [RO]; OOB ib0
n013:101855:101885 [0] NCCL INFO CPU/1 (1/2/-1)
n013:101855:101885 [0] NCCL INFO + PCI[24.0] - GPU/81000 (0)
n013:101855:101885 [0] NCCL INFO + PCI[24.0] - NIC/D1000
n013:101855:101885 [0] NCCL INFO               + NET[25.0] - NET/1 (7a852d0003f6ceb8/1/25.000000)
n013:101855:101885 [0] NCCL INFO + PCI[6.0] - NIC/21000
n013:101855:101885 [0] NCCL INFO              + NET[3.1] - NET/0 (b8e2ce0003f6ceb8/1/3.125000)
n013:101855:101885 [0] NCCL INFO Channel 00/02 :    0   1
n013:101855:101885 [0] NCCL INFO Channel 00/0 : 1[81000] -> 0[81000] [receive] via NET/IB/1/GDRDMA
"""  # NVIDIA/nccl-tests 350
NARROW = TOPOLOGY.replace("PCI[24.0] - NIC", "PCI[12.0] - NIC")
OTHER = TOPOLOGY.replace("n013", "n014").replace("24.0] - GPU", "6.0] - GPU")
PROXY = """\
gcn151:1905241:1905339 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0
gcn151:1905241:1905339 [0] NCCL INFO Channel 00/0 : 7[3] -> 0[0] [receive] via NET/IB/2/GDRDMA
gcn151:1905244:1905342 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/2(0)/GDRDMA
"""  # odissei-benchmarks/nccl-tests
SOCKETS = """\
x1:1610287:1610384 [0] NCCL INFO NET/IB : No device found.
x1:1610287:1610384 [0] NCCL INFO NET/Socket : Using [0]bond0:10.1.57.95<0> [1]hsn1:10.2.1.234<0>
x1:1610287:1610384 [0] NCCL INFO Using network Socket
"""  # argonne-lcf/alcf-nccl-tests, one of its hosts
SEVERAL = (
    "x2:1:2 [0] NCCL INFO comm 0x1 rank 4 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0\n"
)

# Made for these tests, in NCCL's format.
WORKSTATION = """\
box:1:2 [0] NCCL INFO NET/IB : No device found.
box:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
box:1:2 [0] NCCL INFO Using network Socket
box:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0
box:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""
RETRY = """\
a:1:2 [0] transport/net_ib/p2p.cc:688 NCCL WARN NET/IB: Got completion from peer 10.0.0.1<5> with \
status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_3
a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
"""
VERSIONS = """\
a:1:2 [0] NCCL INFO NCCL version 2.27.5+cuda12.9
b:3:4 [0] NCCL INFO NCCL version 2.28.7+cuda12.9
b:3:4 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer a<5>
"""
CROWDED = "".join(
    f"a:1{i}:2 [{i}] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
    f"a:1{i}:2 [{i}] NCCL INFO comm 0x1 rank {i} nRanks 16 nNodes 2 localRanks 8 localRank {i}\n"
    "a:10:2 [0] NCCL INFO Channel 00/02 :    0   1   2   3\n"
    for i in range(8)
)
MIXED = """\
x:1:2 [0] NCCL INFO Using network IB
y:1:2 [0] NCCL INFO Using network Socket
x:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0
y:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/Socket/0
"""
DIRECT_ON_ONE = "z:1:2 [0] NCCL INFO Channel 00/0 : 16[0] -> 0[0] [send] via NET/IB/0/GDRDMA\n"
NAMED = """\
a:1:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
[2026-03-01 02:59:07] b:1:2 [3] transport/net_ib/p2p.cc:688 NCCL WARN NET/IB: Got completion from \
peer 10.0.0.1<44206> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1) \
vendor_err=129  localGid fe80:0000:0000:0000:0000:0000:0000:0001 remoteGids\
fe80:0000:0000:0000:0000:0000:0000:0002 hca mlx5_7
[2026-03-01 02:58:01] a:1:2 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by \
remote peer b<5>
"""
ALIKE = "".join(
    f"[E ProcessGroupNCCL.cpp:737] [Rank {rank}] Watchdog caught collective operation timeout: "
    f"WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for {ms} milliseconds "
    "before timing out.\n"
    for rank, ms in ((1, 1802212), (3, 1802211), (2, 1802212), (6, 1802210))
)  # OFA-Sys/OFA issue 271, the first four
UNLIKE = """\
[rank7]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:607] [Rank 7] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=80078, OpType=BROADCAST, NumelIn=5056, NumelOut=5056, \
Timeout(ms)=600000) ran for 600026 milliseconds before timing out.
[rank3]:[E816 01:45:40.212150935 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=80078, OpType=ALLREDUCE, NumelIn=2106881, NumelOut=2106881, \
Timeout(ms)=600000) ran for 600013 milliseconds before timing out.
"""  # NVIDIA/nccl issue 1409


def cards(host, count):
    named = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(count))
    return f"{host}:1:2 [0] NCCL INFO NET/IB : Using {named} [RO]; OOB eth0:10.0.0.1<0>\n"


def findings(tmp_path, text):
    path = tmp_path / "job.log"
    path.write_text(text)
    return evidence.of_logs(logs.read([path]))


@mark.parametrize(
    ("text", "row", "says"),
    [
        (LOST, 6, "did not answer, in spite of retries"),
        (LOST, 8, "WARN, fatal: flushed: a consequence"),
        (RETRY, 6, "did not answer, in spite of retries"),
        (VERSIONS, 8, "unless these are two jobs: NCCL 2.27.5 on a (job.log, line 1), NCCL"),
        (MIXED, 6, "through TCP sockets, not through RDMA on y; the other hosts use IB (job.log"),
        (MIXED + DIRECT_ON_ONE, 6, "bytes are staged in the host's memory on x; the other"),
        (NAMED, 8, "hca mlx5_7 (on b; job.log, line 2; the address is that of a; at 2026-03-01 02"),
        (ALIKE, 8, "after 1800 s: ranks 1, 2, 3, 6 in ALLREDUCE #469508; a rank that is missing"),
        (UNLIKE, 8, "rank 3 in ALLREDUCE #80078 of 2106881 elements; rank 7 in BROADCAST #80078"),
        (VERSIONS, 8, "a peer ended: look for the first error"),
        (CROWDED, 6, "8 GPUs of a host, 1 cards, 2 channels"),
        (cards("a", 8) + cards("b", 4), 6, "b: 4 cards, where other hosts have 8 (job.log, li"),
        (SOCKETS + SEVERAL, 6, "through TCP sockets, not through RDMA (job.log, line 3)"),
        (NARROW, 6, "n013: NIC/D1000 has 12 GB/s of PCI Express for a link of 25"),
        (TOPOLOGY + OTHER, 6, "n014: GPU/81000 has 6 GB/s of PCI Express where another has 24"),
    ],
)
def test_what_speaks_for_a_row_names_its_line(tmp_path, text, row, says):
    guilty = [one for one in findings(tmp_path, text) if one.guilty]
    found = [one.says for one in guilty if one.row == row]
    assert any(says in one and "line " in one for one in found), guilty


@mark.parametrize(
    ("text", "says"),
    [
        (WORKSTATION, "one host: its 2 GPUs need no network"),
        (SOCKETS, "if it has other hosts: these lines do not say"),
        (PROXY, "PXN: some GPUs send by way of the card beside another GPU"),
        (TOPOLOGY, "GPUDirect RDMA is on"),
        ("a:1:2 [0] init.cc:9 NCCL WARN NCCL_WORK_FIFO_BYTES=3 is being ignored\n", "not known"),
    ],
)
def test_what_is_worth_knowing_accuses_nobody(tmp_path, text, says):
    found = findings(tmp_path, text)
    assert any(says in one.says for one in found), found
    assert not any(one.guilty for one in found), found


@mark.parametrize(
    ("line", "then"),
    [
        ("NCCL_IB_DISABLE set by environment to 1.", "NCCL_IB_DISABLE=1 is set (job.log, line 5)"),
        ("NCCL_IB_DISABLE set by environment to 0.", "ibstat on these hosts"),
        ("Count not open libibverbs.so.1", "libibverbs is missing on x1 (job.log, line 5)"),
    ],
)
def test_what_somebody_set_or_left_out_comes_before_other_causes(tmp_path, line, then):
    found = findings(tmp_path, SOCKETS + SEVERAL + f"x1:1:2 [0] NCCL INFO {line}\n")
    (tcp,) = [one for one in found if "TCP" in one.says]
    assert tcp.then.startswith(then)


def test_warnings_come_in_the_order_of_their_times(tmp_path):
    found = [one.says for one in findings(tmp_path, NAMED) if one.row == 8]
    assert "02:58:01" in found[0] and "02:59:07" in found[1]


def test_two_channels_do_not_show_that_cards_stand_idle(tmp_path):
    few = cards("a", 8) + PROXY.replace("gcn151", "a") + "a:1:2 [0] NCCL INFO Channel 00/02 : 0 1\n"
    assert not any("in use" in one.says for one in findings(tmp_path, few))


def test_a_host_that_is_an_address_stays_unnamed(tmp_path):
    found = findings(tmp_path, cards("10.1.2.3", 8) + cards("10.1.2.4", 4))
    assert any("host 2: 4 cards" in one.says for one in found), found
    assert "10.1.2" not in repr(found)


def test_a_warning_whose_process_then_gives_up_was_fatal(tmp_path):
    unknown = "a:1:2 [0] graph/x.cc:9 NCCL WARN Something new\na:1:2 [0] NCCL INFO init.cc:7 -> 3\n"
    (found,) = [one for one in findings(tmp_path, unknown) if one.row == 8]
    assert found.guilty and "returned an error" in found.says
    other = unknown.replace("a:1:2 [0] NCCL INFO", "a:9:9 [1] NCCL INFO")
    (found,) = [one for one in findings(tmp_path, other) if one.row == 8]
    assert found.guilty is None, "another process"


def test_lines_torn_by_several_writers_name_no_transport(tmp_path):
    torn = "h:658:2 [7] NCCL INFO Channel\nh:66:2 [6] NCCL INFO Channel 1/0 : 6[6] -> 7[7] via P\n"
    (tmp_path / "job.log").write_text(PROXY + torn)
    (log,) = logs.read([tmp_path / "job.log"])
    says = {one.says for one in log.statements if one.topic == "path"}
    assert says == {"NET/IB/GDRDMA", "NET/IB/GDRDMA, by way of another GPU (PXN)"}
