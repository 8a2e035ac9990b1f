from __future__ import annotations

from oomph.lint.analysis import EventKind
from oomph.lint.sources import Document, DocumentKind, parse_document


def test_backward_in_a_method_is_an_event_of_the_calling_loop() -> None:
    document = _document(
        "class T:\n"
        "    def learn(self, x):\n"
        "        self.scaler.scale(self.net(x)).backward()\n"
        "    def run(self, loader):\n"
        "        for x in loader:\n"
        "            self.learn(x)\n"
        "            self.scaler.step(self.opt)\n"
    )
    loop = next(loop for loop in document.loops if loop.of(EventKind.STEP))
    (backward,) = loop.of(EventKind.BACKWARD)
    assert backward.scaler == "self.scaler"
    assert backward.helper is not None
    assert backward.helper.name == "learn"


def test_parameter_for_the_scaler_gets_the_caller_s_name() -> None:
    document = _document(
        "def learn(loss, s):\n    s.scale(loss).backward()\nfor x in loader:\n    learn(net(x), gs)\n    gs.step(opt)\n"
    )
    loop = next(loop for loop in document.loops if loop.of(EventKind.STEP))
    assert [event.scaler for event in loop.of(EventKind.BACKWARD)] == ["gs"]


def test_closure_that_zeroes_gradients_is_complete() -> None:
    document = _document(
        "def closure():\n    opt.zero_grad()\n    loss().backward()\nfor x in loader:\n    closure()\n    opt.step()\n"
    )
    assert not any(event.helper for loop in document.loops for event in loop.events)


def test_top_level_of_each_fence_is_its_own_region() -> None:
    text = "```python\nloss.backward()\n```\n\n```python\nloss.backward()\noptimizer.step()\n```\n"
    document = parse_document("answer.md", text, DocumentKind.MARKDOWN)
    assert [len(loop.events) for loop in document.loops] == [1, 2]


def test_flags_that_refer_to_themselves_end() -> None:
    source = (
        "for i, x in enumerate(y):\n    loss.backward()\n    go = go or i % 4 == 3\n    if go:\n        opt.step()\n"
    )
    (loop,) = _document(source).loops
    assert loop.accumulation is not None


def _document(source: str) -> Document:
    return parse_document("code.py", source, DocumentKind.PYTHON)
