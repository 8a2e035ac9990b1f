"""Random states that are asked for only when something was drawn."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from oomph.recovery._randomness import Randomness, _numpy_tells, _python_tells, _torch_tells, random_states

DRAWS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "random": random.random,
    "gauss": random.gauss,
    "seed": lambda: random.seed(3),
    "many": lambda: [random.getrandbits(32) for _ in range(624)],
    "numpy": np.random.rand,
    "normal": np.random.randn,  # the second one of each pair takes no new word
    "numpy seed": lambda: np.random.seed(3),
    "many of numpy": lambda: np.random.bytes(4 * 624),
    "torch": lambda: torch.rand(1),
    "normal of torch": lambda: torch.randn(1),
    "in double": lambda: torch.randn(1, dtype=torch.float64),
    "torch seed": lambda: torch.manual_seed(3),
    "many of torch": lambda: torch.rand(624),
    "state of torch": lambda: torch.set_rng_state(torch.Generator().get_state()),
}


def draw() -> list[float]:
    ours = [random.random(), random.gauss()]  # noqa: S311  no secrets
    normal = [float(torch.randn(1, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    return [*ours, np.random.rand(), *np.random.randn(3), float(torch.rand(1)), *normal]


def test_this_python_this_numpy_and_this_torch_can_be_read() -> None:
    assert _torch_tells()
    assert _python_tells()
    assert _numpy_tells()


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_put_back_is_what_was(name: str) -> None:
    keeper = Randomness(torch.device("cpu"))
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    for _ in range(5):
        keeper.take()
        DRAWS[name]()
        keeper.take()
        expected, before = draw(), keeper._taken
        keeper.put_back()
        assert draw() == expected
        keeper.put_back()
        now = random_states(None)
        assert torch.equal(before["torch"], now["torch"])
        assert before["python"] == now["python"]
        assert before["numpy"]["has_gauss"] == now["numpy"]["has_gauss"]
        assert np.array_equal(before["numpy"]["state"]["key"], now["numpy"]["state"]["key"])


def test_nothing_is_asked_while_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Randomness(torch.device("cpu"))
    keeper.take()
    asked: list[object] = []

    def noting(ask: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            asked.append(ask)
            return ask()

        return run

    assert keeper._numpy is not None
    for one in (keeper._torch, keeper._python, keeper._numpy):
        monkeypatch.setattr(one, "_ask", noting(one._ask))
    for _ in range(3):
        keeper.take()
    assert asked == []
    random.getrandbits(1)
    np.random.rand()
    torch.rand(1)
    keeper.take()
    assert len(asked) == 3


class Place:
    """A generator as a GPU has it: a seed, and how many numbers were drawn since."""

    def __init__(self) -> None:
        self.seed, self.offset = 2**63 + 5, 12

    def initial_seed(self) -> int:
        return self.seed

    def get_offset(self) -> int:
        return self.offset

    def manual_seed(self, seed: int) -> Place:
        self.seed, self.offset = seed, 0
        return self

    def set_offset(self, offset: int) -> Place:
        self.offset = offset
        return self


def test_a_devices_place_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Place(), Place()
    monkeypatch.setattr(torch.cuda, "default_generators", (first, second))
    keeper = Randomness(torch.device("cuda", 1))
    for _ in range(2):
        keeper.take()
        second.offset += 4
        keeper.put_back()
        second.manual_seed(7)
        keeper.put_back()
        assert (second.seed, second.offset) == (2**63 + 5, 12)
        keeper.let_go()
    second.offset = 16
    keeper.put_back()  # of nothing
    assert (second.offset, first.offset) == (16, 12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU has its own numbers")
@pytest.mark.parametrize("seed", [0, 2**63 + 5])
def test_a_gpu_draws_the_same_numbers_again(seed: int) -> None:
    torch.cuda.manual_seed(seed)
    torch.rand(5, device="cuda")
    keeper, drawn = Randomness(torch.device("cuda")), []
    keeper.take()
    for draw_other in (lambda: None, lambda: torch.cuda.manual_seed(1), lambda: torch.randn(1000, device="cuda")):
        drawn.append(torch.nn.functional.dropout(torch.ones(1000, device="cuda")))
        draw_other()
        keeper.put_back()
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])
