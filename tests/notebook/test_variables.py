from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from oomph.notebook._variables import HeldMemory, grown_variables, largest_variables, measure_variables
from oomph.units import GIB, KIB, MIB


def sizes_of(**variables: Any) -> dict[str, int]:
    return {name: held.ram for name, held in measure_variables(variables).items()}


def test_tensors_arrays_and_bytes_are_counted() -> None:
    assert sizes_of(tensor=torch.ones(KIB), array=np.ones(KIB), raw=bytes(10), number=3, text="x" * 99) == {
        "tensor": 4 * KIB,
        "array": 8 * KIB,
        "raw": 10,
    }


def test_a_small_view_holds_the_whole_storage() -> None:
    assert sizes_of(row=torch.ones(100, 100)[0], part=np.ones((100, 100))[0]) == {"row": 40_000, "part": 80_000}


def test_shared_memory_counts_for_the_first_variable() -> None:
    tensor, array = torch.ones(KIB), np.ones(KIB)
    sizes = sizes_of(a=tensor, b=tensor[:3], c=[tensor], d=array, e=array[1:], f=array)
    assert sizes == {"a": 4 * KIB, "d": 8 * KIB}


def test_models_optimizers_and_other_objects_are_looked_into() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.batches = {"train": ([torch.ones(KIB)], "name")}

    model = nn.Sequential(nn.Sequential(nn.Linear(KIB, 10, bias=False)), nn.BatchNorm1d(10, affine=False))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(torch.ones(2, KIB)).sum().backward()
    optimizer.step()
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    sizes = sizes_of(model=model, optimizer=optimizer, trainer=Trainer())
    assert sizes["model"] == 40 * KIB + buffers  # its gradients belong to the tensors' C++ objects
    assert sizes["optimizer"] == 40 * KIB
    assert sizes["trainer"] == 4 * KIB


def test_results_that_only_ipython_keeps_are_named_out() -> None:
    tensor = torch.ones(KIB)
    assert sizes_of(_=tensor, _3=tensor, Out={3: tensor}) == {"Out": 4 * KIB}
    assert sizes_of(Out={3: tensor}, later=tensor) == {"later": 4 * KIB}


def test_names_to_skip() -> None:
    assert measure_variables({"exit": torch.ones(KIB)}, skip={"exit": None}) == {}


def test_no_code_of_the_user_runs() -> None:
    class Proxy:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def __len__(self) -> int:
            raise AssertionError

        def __bool__(self) -> bool:
            raise AssertionError

    class Strange(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError

    assert sizes_of(proxy=Proxy(), strange=Strange([1])) == {}


def test_tensors_without_memory_are_no_problem() -> None:
    with FakeTensorMode():
        fake = torch.ones(KIB)
    assert sizes_of(fake=fake, meta=torch.ones(KIB, device="meta"), sparse=torch.eye(3).to_sparse()) == {}


def test_cycles_end() -> None:
    loop: list[Any] = [torch.ones(KIB)]
    loop.append(loop)
    assert sizes_of(loop=loop) == {"loop": 4 * KIB}


def test_the_namespace_itself_is_no_variable() -> None:
    namespace: dict[str, Any] = {"tensor": torch.ones(KIB)}
    namespace["everything"] = {"globals": namespace}
    assert list(measure_variables(namespace)) == ["tensor"]


def test_huge_containers_take_little_time() -> None:
    huge = {f"rows{number}": [[index] for index in range(30_000)] for number in range(5)}
    start = time.monotonic()
    measure_variables(huge)
    assert time.monotonic() - start < 2


def test_the_largest_variables_come_first_with_their_device() -> None:
    sizes = {
        "small": HeldMemory(ram=MIB),
        "x": HeldMemory(ram=GIB),
        "model": HeldMemory(gpu=2 * GIB, ram=MIB),
        "a": HeldMemory(ram=100 * MIB),
        "b": HeldMemory(ram=99 * MIB),
    }
    assert largest_variables(sizes) == "model 2 GiB (GPU), x 1 GiB, a 100 MiB, 1 more"


def test_only_growth_counts() -> None:
    before = {"model": HeldMemory(gpu=2 * GIB), "list": HeldMemory(ram=GIB)}
    after = {"model": HeldMemory(gpu=2 * GIB), "list": HeldMemory(ram=3 * GIB)}
    assert grown_variables(before, after) == "list 2 GiB"
    assert grown_variables(after, before) == ""
