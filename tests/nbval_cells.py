"""Notebooks as tests: nbval runs each code cell, and a claim in it holds, fails, or is not judged.

A lesson ends at its first broken cell. An exercises notebook goes on, as each exercise stands for
itself: as it is in the repository its checks have to fail, by exactly "not attempted yet"; in a
learner's copy what is open or wrong is told in one line (`-vv` shows all).
"""

import contextlib
import functools
import itertools
import re
import sys
import textwrap
from pathlib import Path

import jupyter_client.provisioning.local_provisioner as provisioner
import nbformat
import nbval.kernel
import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

from course import other_programs
from course.catalogue import environment
from course.notebooks import exercises, files, tree
from course.predictions import claims, ledger_file
from tests import kernels, printed, spine

ROOT = Path(__file__).resolve().parents[1]
CELL_SECONDS = 120
"""What one cell may take, where `--nbval-cell-timeout` says nothing else."""
CLAIMS, KERNELS = "claims", "kernels"
TIMED = "timed"
"""The tag of a cell that holds times against each other, or runs what a claim is about."""


class Notebook(IPyNbFile):
    """nbval's notebook: its cells bear their ids, its kernel has a ledger of its own."""

    broken = ""  # of a lesson: the cell that failed
    nb = None

    def collect(self):
        self.compare_outputs = False  # only of cells that are marked
        try:
            cells = list(super().collect())
        except Exception as error:
            reason = str(error).split("\n")[0][:200]
            yield Complaint.from_parent(self, name="notebook", reason=f"not a notebook: {reason}")
            return
        folder = self.path.parent.relative_to(ROOT).as_posix() if ROOT in self.path.parents else ""
        checks = self.checks()
        for cell in self.nb.cells:  # nbstripout numbers them anew: a check is known by its source
            if original := checks.get(cell.source.strip()):
                cell["id"] = original.id
        parts = [part for cell in self.nb.cells if (part := exercises.part_of(cell))]
        self.is_lesson = not parts
        untouched = folder == tree.EXERCISES
        beside = folder == f"{tree.LESSONS}/{tree.DEEPER}" or self.path.stem in tree.UNNUMBERED
        marks = [pytest.mark.timeout(self.config.option.nbval_cell_timeout + 60)]
        if self.is_lesson:
            marks.append("lesson")
        if beside:
            marks.append("slow")
        items = []
        timed = [item for item in cells if TIMED in item.cell.metadata.get("tags", [])]
        claims_any = any("claim(" in item.cell.source for item in cells)
        whole = self.is_lesson and claims_any and not timed
        for item in cells:
            fields = {name: getattr(item, name) for name in ("cell_num", "cell", "options")}
            name = item.cell.get("id", f"cell-{item.cell_num}")
            cell = Cell.from_parent(self, name=name, **fields)
            if untouched:
                cell.expect_untouched()
            elif whole or item in timed:
                cell.add_marker("alone")
            items.append(cell)
        if self.is_lesson:
            items.append(Whole.from_parent(self, name="whole"))
        for item, mark in itertools.product(items, marks):
            item.add_marker(mark)
        yield from items
        sources = {cell.source.strip() for cell in self.nb.cells}
        lost = [checks[source] for source in checks if source not in sources]
        for check in () if self.is_lesson else lost:
            number = exercises.part_of(check).number
            reason = "its check cell is gone or was changed; copy it from the course's exercises/"
            complaint = f"exercise {number}: {reason}"
            yield Complaint.from_parent(self, name=f"exercise-{number}", reason=complaint)

    def checks(self):
        """The check cells of the exercises that this is a copy of, by their source."""
        number = re.match(r"\d\d[a-z]?_", self.path.name)
        originals = (ROOT / tree.EXERCISES).glob(f"{number[0]}*.ipynb") if number else ()
        cells = [cell for original in originals for cell in files.read(original).cells]
        parts = [(exercises.part_of(cell), cell) for cell in cells]
        return {cell.source.strip(): cell for part, cell in parts if part and part.role == "check"}

    def setup(self):
        if self.nb is None:
            return
        folder = self.config._tmp_path_factory.mktemp(self.path.stem)
        self.ledger = folder / "ledger"
        self.sockets = contextlib.ExitStack()
        sockets = self.sockets.enter_context(files.sockets())
        own = {"LABKIT_LEDGER": str(self.ledger), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        with pytest.MonkeyPatch.context() as patch:  # the kernel inherits it
            for name, value in environment(COURSE_GATES="open", **own).items():
                patch.setenv(name, value)
            manager = functools.partial(nbval.kernel.KernelManager, **sockets)
            patch.setattr(nbval.kernel, "KernelManager", manager)
            if self.config.option.nbval_current_env:  # another kernel has another Python
                fork_kernels(patch, self.config)
            super().setup()

    def teardown(self):
        super().teardown()
        if self.nb is not None:
            self.sockets.close()


class Reported:
    """Reported by its notebook and its id."""

    def reportinfo(self):
        return self.path, 0, self.nodeid.replace("::", " ")


class Cell(Reported, IPyNbCell):
    """nbval's cell, judged by its claims as well."""

    def expect_untouched(self):
        """Have nbval compare the error that a check shows before anybody tries the exercise."""
        part = exercises.part_of(self.cell)
        if part and part.role == "check":
            says = f"exercise {part.number}: not attempted yet"
            error = nbformat.v4.new_output("error", ename="NotImplementedError", evalue=says)
            self.options |= {"check": True, "check_exception": True}
            self.cell.outputs, self.cell.execution_count = [error], 1

    def runtest(self):
        book = self.parent
        if book.broken:
            pytest.skip(f"{book.broken} failed before it")
        failure = None
        with other_programs.watch() as used:
            try:
                super().runtest()
            except Exception as error:
                failure = error
        book.timed_out = False  # or nbval would expect all that follows to fail
        shown = [out["text"] for out in self.test_outputs or () if out.get("name") == "stdout"]
        lines = printed.claims("".join(shown))
        if lines:
            self.user_properties.append((CLAIMS, lines))
        text = self.error()[1]
        by_the_clock = claims.BY_THE_CLOCK in text.partition("\n")[0]
        if failure and by_the_clock and (used.cpus or 0.0) > other_programs.limit():
            reason = f"{claims.NOT_JUDGED}: other programs used {used.cpus:.1f} CPUs"
            pytest.skip(f"{reason}\n{in_short(text)}")
        if failure:
            book.broken = self.name if book.is_lesson else ""
            raise failure
        if wrong := [line for line in lines if line["verdict"] == claims.NOT_HELD]:
            pytest.fail("; ".join(map("{expected}: {measured}".format_map, wrong)), pytrace=False)
        if left := [line for line in lines if line["verdict"] == claims.NOT_JUDGED]:
            first = "{expected} ({measured})".format_map(left[0])
            pytest.skip(f"{claims.NOT_JUDGED}: {len(left)} of {len(lines)} claims, {first}")

    def error(self):
        """Return the name and the text of the cell's own error."""
        errors = [out for out in self.test_outputs or () if out["output_type"] == "error"]
        return (errors[-1]["ename"], errors[-1]["evalue"]) if errors else ("", "")

    def repr_failure(self, excinfo):
        name, text = self.error()
        if isinstance(excinfo.value, pytest.fail.Exception):
            return str(excinfo.value)
        if self.parent.is_lesson or self.config.option.verbose > 1 or not name:
            return super().repr_failure(excinfo)
        if name == "KeyboardInterrupt":  # nbval's, and it says after how many seconds
            return str(excinfo.value)
        if name == "CheckFailed":
            return in_short(text)
        return textwrap.shorten(text if name == "NotImplementedError" else f"{name}: {text}", 400)


class Complaint(Reported, pytest.Item):
    """What cannot be run, told in one line."""

    def __init__(self, *, reason, **fields):
        super().__init__(**fields)
        self.reason = reason

    def runtest(self):
        pytest.fail(self.reason, pytrace=False)


class Whole(Reported, pytest.Item):
    """After a lesson's cells: nothing was given away."""

    def runtest(self):
        book = self.parent
        if book.broken:
            pytest.skip(f"{book.broken} failed before it")
        results = {
            entry.key: entry.measured
            for entry in ledger_file.load(book.ledger).entries.values()
            if entry.tier != "MEASURED"  # no time of this run, which may meet one of the text
            if entry.tier != "EMULATED" or isinstance(entry.measured, str)
        }
        if answers := list(spine.given_away(files.read(self.path), results)):
            pytest.fail("; ".join(answers), pytrace=False)


def fork_kernels(patch, config):
    """Let kernels be forked, but where torch does not survive a fork."""
    if sys.platform == "linux":
        launch_kernel = functools.partial(kernels.launch_kernel, forker(config))
        patch.setattr(provisioner, "launch_kernel", launch_kernel)


@functools.cache
def forker(config):
    """Return the address of the process that forks kernels for this one and all beside it."""
    if shared := getattr(config, "workerinput", {}).get(KERNELS):
        return shared
    started = kernels.Forker(environment())
    config.add_cleanup(started.close)
    return started.address


def in_short(refusal):
    """Give each field of a check's refusal its line; what it usually means stays whole."""
    title, *fields = re.split(r"\n  (?=expected |got |usually means )", refusal)
    lines = [" ".join(field.split()) for field in fields]
    shown = [line if line.startswith("usually") else textwrap.shorten(line, 300) for line in lines]
    return "\n  ".join([title, *shown])
