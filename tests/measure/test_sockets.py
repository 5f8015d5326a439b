import socket

import pytest

from labkit.measure import sockets

pytestmark = pytest.mark.skipif(
    sockets.unavailable() is not None, reason=f"TCP_INFO: {sockets.unavailable()}"
)


def connected(family, host):
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        client = socket.create_connection(listener.getsockname()[:2])
        server, _ = listener.accept()
    return client, server


@pytest.mark.parametrize("family, host", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_both_ends_agree_on_who_and_how_much(family, host):
    try:
        client, server = connected(family, host)
    except OSError as error:
        pytest.skip(f"no {host} here: {error}")
    with client, server:
        client.sendall(b"x" * 12345)
        received = 0
        while received < 12345:
            received += len(server.recv(65536))
        sockets.drain()
        found = sockets.snapshot()
        end = next(end for end in found if end.local[1] == client.getsockname()[1])
        assert found[end] == sockets.Traffic(sent=12345, received=0)
        assert found[end.other_end] == sockets.Traffic(sent=0, received=12345)


def test_ipv4_inside_ipv6_reads_the_same_at_both_ends():
    with socket.socket(socket.AF_INET6) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            listener.bind(("::", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
        listener.listen()
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as client:
            server, _ = listener.accept()
            with server:
                found = sockets.snapshot()
                end = next(end for end in found if end.local[1] == client.getsockname()[1])
                assert end.other_end in found


def test_drain_gives_up_on_a_reader_that_never_reads():
    client, server = connected(socket.AF_INET, "127.0.0.1")
    with client, server:
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                client.send(b"x" * 2**20)
        with pytest.raises(TimeoutError, match="still queued"):
            sockets.drain(timeout=0.05)


def test_listening_sockets_and_files_are_left_alone():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ports = {end.local[1] for end in sockets.snapshot()}
        assert listener.getsockname()[1] not in ports
