"""What a retry could spoil: each keeper takes one kind of it, and puts it back as often as asked.

Taking must cost microseconds, because it happens in every step; putting back may take its time. Each keeper can be
asked to put back twice, or after half of it was put back: a fault in the recovery is followed by another recovery.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from operator import attrgetter, is_, is_not
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from ._batch import VERSION, tensors_in
from ._contents import Back, Contents, Modules
from ._copies import Copies
from ._hooks import is_hooked_before

_LOOKS = 2  # steps in which buffers are looked for: some are made by the first forward
GRADIENT = attrgetter("grad")
_SMALL = 1 << 18  # elements; larger buffers (masks, position tables) are copied again only when their version says so


class Keeper(Protocol):
    """Takes something, puts it back, lets go of it."""

    def take(self) -> None:
        """Remember how it is now."""

    def put_back(self) -> None:
        """Make it as it was."""

    def let_go(self) -> None:
        """Forget it."""


class Buffers:
    """The buffers of modules: BatchNorm's statistics and whatever else a forward changes."""

    def __init__(self, *modules: nn.Module) -> None:
        self._modules, self._looks = modules, _LOOKS
        self._shelves: list[dict[str, Tensor | None]] = []  # as torch keeps them, by name
        self._tensors: list[Tensor | None] = []
        self._names: list[list[str]] = []  # of these, by shelf
        self._small, self._large = _Some(), _Some()
        self._versions: list[int] | None = None  # of the large ones, when they were copied
        self._taken = False

    def take(self) -> None:
        """Copy them: the small ones always, because kernels change statistics without telling; others if changed."""
        self._taken = False
        if self._looks:
            self._find()
        if not self._shelves:
            return
        found = itertools.chain.from_iterable(map(dict.values, self._shelves))
        if sum(map(len, self._shelves)) != len(self._tensors) or not all(map(is_, found, self._tensors)):
            tensors = list(itertools.chain.from_iterable(map(dict.values, self._shelves)))
            present = [tensor for tensor in tensors if tensor is not None]
            self._small.tensors = [tensor for tensor in present if tensor.numel() <= _SMALL]
            self._large.tensors = [tensor for tensor in present if tensor.numel() > _SMALL]
            self._names = [list(shelf) for shelf in self._shelves]
            self._tensors, self._versions = tensors, None
        self._small.copies.take(self._small.tensors)
        versions = [tensor._version for tensor in self._large.tensors]
        if versions != self._versions:
            self._versions = None
            self._large.copies.take(self._large.tensors)
            self._versions = versions
        self._taken = True

    def _find(self) -> None:
        """Find the modules that have any."""
        owners = dict.fromkeys(owner for module in self._modules for owner in module.modules())
        shelves = [_shelf(owner) for owner in owners]
        self._shelves = [shelf for shelf in shelves if shelf]
        self._tensors, self._names = [], [list(shelf) for shelf in self._shelves]

    def put_back(self) -> None:
        """Copy them back, into the tensors that were there; those that were made since stay."""
        if not self._taken:
            return
        self._small.copies.put_back()
        if [tensor._version for tensor in self._large.tensors] != self._versions:
            self._large.copies.put_back()
            self._versions = [tensor._version for tensor in self._large.tensors]
        tensors = iter(self._tensors)
        for shelf, names in zip(self._shelves, self._names, strict=True):
            for name in names:
                shelf[name] = next(tensors)

    def let_go(self) -> None:
        """Keep the blocks: they are small, and needed again in the next step."""
        self._looks -= self._looks > 0
        self._taken = False


def _shelf(owner: nn.Module) -> dict[str, Tensor | None]:
    """The buffers of a module, as it keeps them; of a scripted one, which has no dictionary of them, in one of ours."""
    kept: Any = owner._buffers
    return kept if isinstance(kept, dict) else dict(owner.named_buffers(recurse=False))


class _Some:
    """Some of the buffers, and the copies of them."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.copies = Copies()


class Gradients:
    """The gradients that earlier batches have accumulated.

    They are set aside, so that the step writes into fresh ones and adds them at the end; nothing is copied, and where
    there are none (each step updates) nothing is held.
    """

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._model, self._optimizers, self._members = model, optimizers, Members(optimizers)
        self.parameters: list[nn.Parameter] = []  # frozen ones too: they may thaw
        self.aside: dict[int, Tensor] = {}
        self._taken = False
        self._look()

    def _look(self) -> None:
        """Find all parameters, the model's and those that only an optimizer has, again when optimizers have others."""
        if not self._members.are_same():
            self.parameters = all_parameters([self._model], self._optimizers)

    @property
    def trained(self) -> list[nn.Parameter]:
        """Those that aren't frozen now."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    def take(self) -> None:
        """Set them aside."""
        self._look()
        self.aside = {}
        if any(map(is_not, map(GRADIENT, self.parameters), itertools.repeat(None))):
            self.aside = {index: own for index, one in enumerate(self.parameters) if (own := one.grad) is not None}
        self._taken = True
        for index in self.aside:
            self.parameters[index].grad = None

    def clear(self) -> None:
        """Take them all off: written out, because zero_grad calls into the profiler, which may run short too."""
        for parameter in self.parameters:
            parameter.grad = None

    def put_back(self) -> None:
        """Throw away what was computed since, and give back what was set aside."""
        if self._taken:
            for index, parameter in enumerate(self.parameters):
                parameter.grad = self.aside.get(index)

    def let_go(self) -> None:
        """Forget what was set aside."""
        self.aside, self._taken = {}, False


class GradientCopies:
    """Gradients, copied where there are any: for work that goes on adding to them."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._gradients: list[Tensor | None] = []
        self._copies = Copies()

    def take(self) -> None:
        """Copy them."""
        self._gradients = []
        gradients = [one.grad for one in self._parameters]
        self._copies.take([gradient for gradient in gradients if gradient is not None])
        self._gradients = gradients

    def put_back(self) -> None:
        """Copy them back, into the tensors that were there."""
        if self._gradients:
            self._copies.put_back()
            for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
                parameter.grad = gradient

    def let_go(self) -> None:
        """Free the copies, and hold no gradient that others have taken off."""
        self._copies, self._gradients = Copies(), []


class OptimizerState:
    """An optimizer's parameters, state and options: what a half-done update would have spoilt.

    Args:
        optimizer: whose.
        ready: the gradients are there already. Then others than theirs can't be updated, and they are copied too if the
            update itself writes to them, as Nesterov's does in some forms: where nobody knows, the first one tells.
    """

    def __init__(self, optimizer: Optimizer, *, ready: bool = False) -> None:
        self._optimizer, self._ready = optimizer, ready
        self._owners: list[nn.Parameter] = []  # those with gradients
        self._gradients: list[Tensor] = []
        self._versions: list[int] = []  # of these, before the update
        self._writes: bool | None = None  # whether the update changes them; None: not known yet
        self._before: Copies | None = None  # of them, if it does
        self.is_spoilt = False  # an attempt has changed them, and they can't be put back
        self.ignores_gradients = False  # somebody else keeps them
        self._copies = Copies()
        self._values: list[Any] = []  # everything in the state, in order
        self._inside: list[Tensor] = []  # the tensors in that
        self._nested = False  # whether some of them are in containers, which change without being others
        self._entries: list[tuple[Tensor, dict[str, Any]]] = []
        self._keys: list[Tensor] = []  # whose they are
        self._groups: list[dict[str, Any]] = []
        self._taken = False
        self.host = False

    @property
    def bytes(self) -> int:
        """What the copy takes, but for gradients that an update writes to."""
        return self._copies.bytes

    def take(self) -> None:
        """Copy what an update can change."""
        self._taken = False
        self._look()
        self._groups = [_options(group) for group in self._optimizer.param_groups]
        tensors = parameters_of(self._optimizer)
        if self._ready:
            tensors = [one for one in tensors if one.grad is not None]
            self._take_gradients([] if self.ignores_gradients else tensors)
        self._copies.take(tensors + self._inside, host=self.host)
        self._taken = True

    def _take_gradients(self, owners: list[nn.Parameter]) -> None:
        self._owners, self._gradients = owners, list(map(GRADIENT, owners))
        self._versions, self.is_spoilt = list(map(VERSION, self._gradients)), False
        covers = _may_write(self._optimizer) if self._writes is None else self._writes
        self._before = Copies() if covers else None
        if self._before is not None:
            self._before.take(self._gradients, host=self.host)

    def learn(self, *, usual: bool = True) -> None:
        """The update is complete: see whether it has written to gradients.

        The first time by their values, because some write to `.data`, of which nobody counts versions.

        Args:
            usual: whether it was made as always. One by one, an optimizer may write to less.
        """
        if not self._gradients:
            return
        if self._has_written():
            self._writes = True
        elif usual and self._writes is None and self._before is not None:
            self._writes = self._before.differ()

    def _has_written(self) -> bool:
        return list(map(VERSION, self._gradients)) != self._versions

    def _look(self) -> None:
        """Find what the state is made of, unless it is made of the same things as the last time."""
        state = self._optimizer.state
        values = list(itertools.chain.from_iterable(map(dict.values, state.values())))
        same = len(values) == len(self._values) and all(map(is_, values, self._values))
        whose = len(state) == len(self._keys) and all(map(is_, state, self._keys))
        if same and whose and not self._nested:
            return
        self._keys = list(state)
        self._entries = [(parameter, dict(entry)) for parameter, entry in state.items()]
        self._inside = list(tensors_in(values))
        self._nested = any(isinstance(value, (list, tuple, dict)) for value in values)
        self._values = values

    def put_back(self) -> None:
        """Copy it back; state that was made since is removed, so that the first step is a first step again."""
        if not self._taken:
            return
        if self._before is not None:
            self._before.put_back()
        else:
            self.is_spoilt = self._has_written()
        for owner, gradient in zip(self._owners, self._gradients, strict=True):
            owner.grad = gradient
        self._copies.put_back()
        state = self._optimizer.state
        known = {id(parameter) for parameter, _ in self._entries}
        for parameter in [one for one in state if id(one) not in known]:
            del state[parameter]
        for parameter, entry in self._entries:
            state[parameter].clear()
            state[parameter].update(entry)
        for group, options in zip(self._optimizer.param_groups, self._groups, strict=True):
            group.update({name: _clone(value) for name, value in options.items()})

    def let_go(self) -> None:
        """Free the copy."""
        self._copies.let_go()
        self._groups, self._owners, self._gradients, self._before, self._taken = [], [], [], None, False

    def forget(self) -> None:
        """Hold none of the tensors any longer, until the next time."""
        self._copies, self._values, self._inside, self._entries, self._keys = Copies(), [], [], [], []


def _may_write(optimizer: Optimizer) -> bool:
    """Whether an optimizer's update may write to gradients; of torch's usual ones that is known."""
    if is_hooked_before(optimizer):
        return True
    if type(optimizer) is SGD:
        return any(group["nesterov"] and not group.get("fused") for group in optimizer.param_groups)
    return type(optimizer) not in {Adam, AdamW}


class GroupOptions:
    """The options of an optimizer's groups, which schedulers change: of one whose weights are not copied."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups: list[dict[str, Any]] = []

    def take(self) -> None:
        """Remember them."""
        self._groups = [_options(group) for group in self._optimizer.param_groups]

    def put_back(self) -> None:
        """Set them as they were."""
        for group, options in zip(self._optimizer.param_groups, self._groups, strict=False):
            group.update({name: _clone(value) for name, value in options.items()})

    def let_go(self) -> None:
        """Forget them."""
        self._groups = []


class Members:
    """The parameters that optimizers have, group by group; whether they have others now.

    Lists compare what they hold by identity first, without touching it, which is many times as fast as to ask for that.
    Only of other ones torch compares the numbers: many can't be compared so, and single ones are looked at before.
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._optimizers = optimizers
        self._known: list[list[nn.Parameter]] | None = None
        self._single: list[tuple[int, int, nn.Parameter]] = []  # those of one number, with group and place

    def are_same(self) -> bool:
        """Whether they are those of the last time; now they are known."""
        found = [group["params"] for optimizer in self._optimizers for group in optimizer.param_groups]
        if self._known is not None and self._are_known(found):
            return True
        self._known = [list(members) for members in found]
        places = [(at, place, one) for at, own in enumerate(found) for place, one in enumerate(own)]
        self._single = [where for where in places if where[-1].numel() == 1]
        return False

    def _are_known(self, found: list[list[nn.Parameter]]) -> bool:
        try:
            if self._single and not all(found[at][place] is one for at, place, one in self._single):
                return False
            same = found == self._known
        except (IndexError, RuntimeError):
            return False
        return same


def owner_of(function: Any) -> Any:
    """The object that a method belongs to, where its state is; a function itself, or an object that can be called."""
    return getattr(function, "__self__", function)


def modules_of(loss: Any) -> list[nn.Module]:
    """The modules of a loss: itself, or those that it holds."""
    owner = owner_of(loss)
    held = [owner] if isinstance(owner, nn.Module) else getattr(owner, "__dict__", {}).values()
    return [one for one in held if isinstance(one, nn.Module)]


def parameters_of(optimizer: Optimizer) -> list[Any]:
    """Everything that an optimizer updates."""
    return list(itertools.chain.from_iterable([group["params"] for group in optimizer.param_groups]))


def all_parameters(modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> list[nn.Parameter]:
    """Every parameter of modules and optimizers, once: a loss may have some that only an optimizer knows."""
    found = {id(one): one for module in modules for one in module.parameters()}
    found.update((id(one), one) for optimizer in optimizers for one in parameters_of(optimizer))
    return list(found.values())


def _options(group: dict[str, Any]) -> dict[str, Any]:
    options = group.copy()
    del options["params"]
    for name in [name for name, value in options.items() if isinstance(value, Tensor)]:
        options[name] = options[name].clone()
    return options


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


class ObjectState:
    """Any object's attributes, and the tensors and containers in them: a scaler, an average, a scheduler, a metric.

    Args:
        objects: all of them.
        but: modules that somebody else keeps.
        modules: what of modules is kept; with "nothing" no other tensors either, where nothing can fail once they are
            being changed.
    """

    def __init__(self, *objects: object, but: Iterable[nn.Module] = (), modules: Modules = "all") -> None:
        self._objects, self._but, self._modules = objects, tuple(but), modules
        self._backs: list[Back] = []
        self._trees: dict[nn.Module, list[nn.Module]] = {}
        self._copies = Copies()
        self._taken = False

    def take(self) -> None:
        """Remember attributes as they are bound, containers by their contents, tensors and arrays by their values."""
        self._taken = False
        found = Contents(self._but, self._modules, self._trees)
        for one in self._objects:
            found.add(one)
        self._copies.take(found.tensors if self._modules != "nothing" else [])
        self._backs = found.backs
        self._taken = True

    def put_back(self) -> None:
        """Make them as they were."""
        if not self._taken:
            return
        for put, thing, kept in self._backs:
            put(thing, kept)
        self._copies.put_back()

    def let_go(self) -> None:
        """Free the copies."""
        self._copies.let_go()
        self._backs, self._taken = [], False
