"""Whoever waits for a measurement sees for how long."""

import time
from types import SimpleNamespace

import IPython.display
from pytest import raises

from course import runs


class Shown:
    def __init__(self):
        self.texts = []

    def __call__(self, text, **_):
        self.update(text)
        return self

    def update(self, text, **_):
        self.texts.append(text["text/plain"])


def test_a_long_measurement_is_told_in_one_line_also_where_it_fails(monkeypatch):
    shown = Shown()
    monkeypatch.setattr(IPython.display, "display", shown)
    monkeypatch.setattr(runs, "nobody_answers", lambda: False)
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=True))
    runs.watched(lambda: runs.watched(list))
    assert shown.texts == []
    with raises(ZeroDivisionError):
        runs.watched(lambda: runs.watched(lambda: time.sleep(2.3) or 1 / 0))
    assert shown.texts == ["measuring on this machine: 2 s", "measured on this machine: 2 s"]
