from nbformat.v4 import new_notebook, new_output
from pytest import mark, raises

from course.notebooks import files
from tests.course.samples import cell, lesson


def test_what_a_person_ran_and_saved_becomes_canonical_and_stays_it():
    notebook = new_notebook(cells=[cell("a", "1", tags=["a"]), cell("b", "1")])
    notebook.metadata = {"kernelspec": {"name": "my-conda-env", "display_name": "mine"}}
    for count, item in enumerate(notebook.cells, start=40):
        item.metadata |= {"execution": {"iopub.execute_input": "now"}, "scrolled": True}
        item.execution_count = count
        item.outputs = [new_output("execute_result", {"text/plain": "3"}, execution_count=count)]
    before = files.dumps(notebook)
    once = files.canonical(notebook)
    assert once.metadata["kernelspec"]["name"] == "python3"
    assert once.cells[0].metadata == {"tags": ["a"]}
    assert (once.cells[0].outputs, once.cells[0].execution_count) == ([], None)
    assert files.dumps(notebook) == before
    assert files.dumps(files.canonical(once)) == files.dumps(once)


@mark.parametrize("drawn", ["3f2a9c01", "0b54b1b3-7a11-4d2e-9a55-1c8a9a2f0b11"])
def test_an_id_that_jupyterlab_drew_becomes_readable_once(drawn):
    notebook = new_notebook(cells=[cell("gate-a-b", "1"), cell(drawn, "gate('a')\nb = 3")])
    named = files.canonical(notebook)
    assert [item.id for item in named.cells] == ["gate-a-b", "gate-a-b-2"]
    assert files.canonical(named) == named and not list(files.problems(named))


def test_an_id_that_is_unreadable_and_one_used_twice_are_named():
    sources = {"Cell_1": "x = 1", "a--b": "x = 2"}
    notebook = new_notebook(cells=[cell(name, source) for name, source in sources.items()])
    notebook.cells += [cell("a-b", "1"), cell("a-b", "2")]
    *unreadable, twice = files.problems(notebook)
    for complaint, name in zip(unreadable, sources, strict=True):
        assert name in complaint and repr(sources[name]) in complaint
    assert twice == "cell 3 ('2') has the id 'a-b', which an earlier cell has too"


def test_no_notebook_and_one_with_an_id_twice_are_refused_not_repaired(tmp_path):
    path = tmp_path / "notes.ipynb"
    twice = files.dumps(lesson("1", "2")).replace("step-1", "step-0")
    for text, says in ((twice, "step-0"), ("not json", r"notes\.ipynb is not a notebook")):
        path.write_text(text)
        with raises(ValueError, match=says):
            files.read(path)


@mark.slow
def test_a_failing_cell_is_an_error_and_a_kernel_listens_at_no_port(tmp_path):
    path = tmp_path / "notebooks/01_sample.ipynb"
    listens = "from ipykernel.kernelapp import IPKernelApp\nhow = IPKernelApp.instance().transport"
    files.write(lesson(listens, "raise ValueError(how)"), path)
    with raises(RuntimeError, match=": ipc"):
        files.execute(path)
