from __future__ import annotations

import pytest

from oomph.detect.dataset._issues import IssueLog
from oomph.errors import UsageError


def test_issues_are_counted_by_kind_and_skipped_items_come_first() -> None:
    log = IssueLog()
    for number in range(5):
        log.add("box", "clipped", f"a.txt:{number}", broken=False)
    log.add("box", "outside the image", "b.txt:1")
    log.add("image", "have no objects", None, broken=False, count=21)
    assert [str(issue) for issue in log.summary()] == [
        "1 box skipped: outside the image (b.txt:1)",
        "21 images have no objects",
        "5 boxes clipped (first: a.txt:0)",
    ]
    assert log.summary()[2].examples == ("a.txt:0", "a.txt:1", "a.txt:2")
    assert (log.broken("box"), log.broken("image")) == (1, 0)


def test_a_single_item_is_in_the_singular() -> None:
    log = IssueLog()
    log.add("image", "have no objects", None, broken=False)
    assert str(log.summary()[0]) == "1 image has no objects"


def test_too_many_broken_items_raise() -> None:
    log = IssueLog()
    log.add("box", "outside the image", "a.txt:1", count=2)
    log.raise_if_too_many("box", 10, 0.2, "data.yaml")
    log.raise_if_too_many("image", 0, 0.0, "data.yaml")
    with pytest.raises(UsageError) as caught:
        log.raise_if_too_many("box", 10, 0.1, "data.yaml")
    assert str(caught.value) == (
        "2 of 10 boxes in data.yaml can't be used; most frequent reason: outside the image (first: a.txt:1); "
        "fix the data, or set `max_broken_fraction` above 0.1 in the settings."
    )
