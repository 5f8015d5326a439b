"""What NCCL says of itself: lines of public logs of six clusters, and lines made up."""

from pytest import mark

from course.logs import logs, nccl_debug, report

# Single lines, their host names shortened, from github.com/NVIDIA/nccl issues 952, 302, 1412, 1453,
# 687, and from github.com/argonne-lcf/alcf-nccl-tests (commit 385be33, pytests/VAE/results).
NO_CARD = """\
h:919:1150 [0] NCCL INFO NET/IB : No device found.
h:926:1151 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3
h:926:1151 [7] NCCL INFO Channel 07/0 : 15[7] -> 6[6] [send] via NET/Socket/3
"""
FIVE_CARDS = """\
[155] h:5330:5330 [3] NCCL INFO Bootstrap : Using [0]eth0:10.100.62.64<0>
[155] h:5330:5330 [3] NCCL INFO NET/IB : Using [0]mlx5_1:1/IB [1]mlx5_3:1/IB [2]mlx5_0:1/IB \
[3]mlx5_2:1/RoCE [4]mlx5_4:1/IB ; OOB eth0:10.100.62.64<0>
[155] h:5330:5499 [3] NCCL INFO Ring 00 : 155[3d000] -> 157[b2000] via P2P/IPC
"""
STAGED = """\
h:2017630:2017699 [5] NCCL INFO Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3
h:2017630:2017698 [6] NCCL INFO Channel 05/0 : 6[6] -> 3[3] via P2P/direct pointer/read
"""
DIRECT = """\
[0] h:497888:498098 [0] NCCL INFO Channel 07/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/7/GDRDMA
[0] h:497888:497888 [0] NCCL INFO 262144 Bytes -> Algo 0 proto 1 time 54.707825
"""
RINGS = """\
h:985927:986028 [3] NCCL INFO Channel 00 : 3[4a000] -> 6[44000] [send] via NET/IB/0/GDRDMA
h:985924:986013 [0] NCCL INFO Connected all rings
"""
POLARIS = """\
x:1:2 [3] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)
x:1:2 [3] NCCL INFO Using network AWS Libfabric
x:1:2 [3] NCCL INFO NCCL_NET_GDR_LEVEL set by environment to PHB
x:1:2 [3] NCCL INFO 4 coll channels, 0 collnet channels, 0 nvls channels, 4 p2p channels, \
2 p2p channels per peer
x:1:2 [3] NCCL INFO Channel 00/04 :    0   2   3   7   6   4   5   1
x:1:2 [3] NCCL INFO Trees [0] 6/-1/-1->5->1 [1] -1/-1/-1->5->4
"""
MADE = """\
box:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9
box:1:1 [0] NCCL INFO NET/Socket : Using [0]enp6s0:192.168.68.52<0> [1]br0:fe80::c0ff:1%br0<0>
box:1:1 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0
box:1:1 [0] NCCL INFO AllReduce: 33554432 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}
box:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
box:1:1 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'
box:1:9 [1] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on 10.1.2.3:5
box:1:9 [1] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on 10.1.2.4:5
box:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0
"""


def read(tmp_path, text):
    path = tmp_path / "job.log"
    path.write_text("Loading modules\n" + text)
    (log,) = logs.read([path])
    assert (log.tool, log.problems) == ("NCCL_DEBUG", [])
    return log


@mark.parametrize(
    "text, topic, says, line",
    [
        (NO_CARD, "path", "NET/Socket", 3),
        (FIVE_CARDS, "cards", "[3]mlx5_2:1/RoCE [4]mlx5_4:1/IB", 3),
        (FIVE_CARDS, "path", "P2P/IPC", 4),
        (DIRECT, "algorithm", "a collective, 262144 bytes: Tree, LL128", 3),
        (RINGS, "rings", "rings", 3),
        (POLARIS, "network", "AWS Libfabric", 3),
        (POLARIS, "cards", "cxi (found 4 nics)", 2),
        (POLARIS, "setting", "NCCL_NET_GDR_LEVEL=PHB", 4),
        (POLARIS, "channels", "4 coll channels, 0 collnet", 5),
        (POLARIS, "ring", "00/04 :    0   2   3   7", 6),
        (POLARIS, "tree", "[0] 6/-1/-1->5->1", 7),
        (MADE, "version", "NCCL 2.27.5", 2),
        (MADE, "interfaces", "enp6s0 br0", 3),
        (MADE, "rings", "PXN 0 GDR 0", 4),
        (MADE, "algorithm", "AllReduce, 33554432 bytes: NVLS, SIMPLE", 5),
        (MADE, "GPUDirect RDMA", "Disabled", 7),
        (MADE, "warning", "ibv_modify_qp failed with 110", 8),
        (MADE, "NVLink SHARP", "NVLS multicast support is not available", 10),
    ],
)
def test_a_statement_names_its_first_line(tmp_path, text, topic, says, line):
    kept = [one for one in read(tmp_path, text).statements if one.topic == topic]
    assert any(says in one.says and one.row == f"job.log, line {line}" for one in kept), kept


@mark.parametrize(
    "text, says, line",
    [
        (NO_CARD, "through TCP sockets", 3),
        (STAGED, "GPUDirect RDMA is off", 2),
        (RINGS, "GPUDirect RDMA is on", 2),
        (MADE, "through its memory (SHM)", 6),
    ],
)
def test_what_follows_names_its_row(tmp_path, text, says, line):
    rows = report._conclusions(read(tmp_path, text)).rows
    assert any(says in row[0] and row[1] == f"job.log, line {line}" for row in rows), rows
    assert len(rows) <= 2


def test_lines_of_many_ranks_are_one_statement_without_addresses(tmp_path):
    log = read(tmp_path, MADE)
    (warning,) = [one for one in log.statements if one.topic == "warning"]
    assert warning.count == 2, "the same but for the address"
    assert not any(word in repr(log) for word in ("192.168", "fe80", "10.1.2"))
    rows = report._statements(log).rows
    assert [row[2] for row in rows if row[0] == "warning"] == [2]


def test_names_of_numbers():
    assert [nccl_debug.version(code) for code in (22807, 2708)] == ["2.28.7", "2.7.8"]
    assert nccl_debug._choice("AllGather", "8", "1", "2") == "AllGather, 8 bytes: Ring, Simple"
