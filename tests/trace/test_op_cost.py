from __future__ import annotations

import torch

from oomph.trace import Phase
from oomph.trace._op_cost import op_cost


def test_gathering_reads_only_what_it_returns() -> None:
    table, index = torch.empty(10, 1000), torch.zeros(10, 1, dtype=torch.int64)
    out = table.gather(1, index)
    (cost,) = op_cost("aten.gather.default", (table, 1, index), (out,), "", Phase.FORWARD)
    assert cost.traffic == 10 * 8 + 10 * 4
    (cost,) = op_cost("aten.scatter_add_.default", (table, 1, index, out), (table,), "", Phase.FORWARD)
    assert cost.traffic == 10 * 8 + 10 * 4
