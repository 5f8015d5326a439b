"""Three steps of a small model in which a learner's hooks start the all_reduces: exercise 2.3."""

import copy
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

from course.checks.checking import hold
from course.checks.memory import BufferLog
from course.checks.trial import Case

Gradients = list[torch.Tensor]


def train(attach: Callable) -> list[SimpleNamespace]:
    """Train with a learner's hooks; return what was seen in each step. Runs on every rank."""
    torch.manual_seed(5)
    layers = nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 9)
    model = nn.Sequential(*layers)
    reference = copy.deepcopy(model)
    finish = attach(model)
    hold(callable(finish), "attach returns a function", finish, "`return finish` is missing")
    rank, steps, ended = dist.get_rank(), [], weakref.WeakSet[dist.Work]()
    for number in range(3):
        x = Case(3, (4, 6)).data(1_000_003 * number + rank) / 99  # other data in each step
        reference.zero_grad()
        reference(x).square().sum().backward()
        model.zero_grad()
        step = SimpleNamespace(own=_gradients(reference), early=[])
        with BufferLog() as log:
            first = model[0](x)
            first.register_hook(lambda _, step=step, log=log: step.early.append(len(log.calls)))
            loss = model[1:](first).square().sum()
            if rank == number:
                time.sleep(0.2)  # so long the others' all_reduces are under way
            loss.backward()
            step.waited = sum(call.waited is not None for call in log.calls)
            step.touched = next((call.touched for call in log.calls if call.touched), None)
            finish()
            step.gradients = _gradients(model)  # at once: without a wait they are wrong now
        step.calls, step.again = log.calls, len(log.waited_for & ended)
        steps.append(step)
        ended |= log.waited_for
    return steps


def _gradients(model: nn.Module) -> Gradients:
    gradients = [parameter.grad for parameter in model.parameters()]
    missing = sum(gradient is None for gradient in gradients)
    hold(not missing, "every parameter has a gradient", f"{missing} are None")
    return copy.deepcopy(gradients)
