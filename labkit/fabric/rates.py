"""Rates of links: read them, write them, and find out what this machine can carry."""

import re
import socket
import threading
import time

_UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]+)\s*")


def parse_rate(rate: str | float) -> float:
    """Return a rate in bits per second.

    Args:
        rate: Bits per second as a number, or text with a unit as `tc` writes it:
            `"200mbit"`, `"1gbit"`, `"1.5gbit"` (1 gbit = 1e9 bits per second).

    Raises:
        ValueError: the text has no known unit, or the rate is not a positive finite number.

    Example:
        >>> parse_rate("200mbit")
        200000000.0
    """
    if isinstance(rate, str):
        match = _RATE.fullmatch(rate)
        factor = _UNITS.get(match[2].lower()) if match else None
        if factor is None:
            raise ValueError(
                f"rate={rate!r} is not a rate. Write a number and one of "
                f'{", ".join(_UNITS)}: rate="200mbit".'
            )
        bits = float(match[1]) * factor
    else:
        bits = float(rate)
    if not 0 < bits < float("inf"):
        raise ValueError(f"rate={rate!r} must be above 0 bits per second and finite.")
    return bits


def format_rate(bits: float) -> str:
    """Write bits per second for a person: `format_rate(744e6)` is `"744 Mbit/s"`."""
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= factor:
            return f"{bits / factor:.4g} {unit}"
    return f"{bits:.4g} bit/s"


_fastest_seen = 0.0


def loopback_rate(wanted: float = 0.0) -> float:
    """Return what one TCP connection over this machine's loopback carries, in bits per second.

    A shaped link can only slow traffic down, so no fabric is faster than this. Other programs can
    make a measurement too low and never too high: the highest of this process counts, and as long
    as it is below `wanted`, it is measured again, ever longer, up to a second in all.
    """
    global _fastest_seen
    seconds = 0.03
    while not _fastest_seen or (_fastest_seen < wanted and seconds < 0.5):
        _fastest_seen = max(_fastest_seen, _measure_loopback(seconds))
        seconds *= 2
    return _fastest_seen


def _measure_loopback(seconds: float) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    block = bytes(1 << 18)

    def pour() -> None:
        until = time.perf_counter() + seconds
        with sender:
            while time.perf_counter() < until:
                sender.sendall(block)

    room, received = bytearray(1 << 18), 0
    pouring = threading.Thread(target=pour)
    begin = time.perf_counter()
    pouring.start()
    with receiver:
        while count := receiver.recv_into(room):
            received += count
    pouring.join()
    return received * 8 / (time.perf_counter() - begin)
