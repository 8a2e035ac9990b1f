from __future__ import annotations

import pytest

from oomph.errors import UsageError
from oomph.integrations._versions import check_version


@pytest.mark.parametrize("installed", ["4.50", "4.50.0", "4.57.6", "5.0.0rc1", "5.22.2.dev0+local", "10.0"])
def test_new_versions_are_allowed(installed: str) -> None:
    check_version("transformers", installed, "4.50")


@pytest.mark.parametrize("installed", ["4.49.9", "4.9", "3", "unknown"])
def test_old_versions_are_one_sentence(installed: str) -> None:
    with pytest.raises(UsageError, match=rf"transformers {installed} is installed, and oomph needs 4.50 or newer; run"):
        check_version("transformers", installed, "4.50")
