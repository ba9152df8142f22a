"""How many nodes a Ray cluster has, read from `ray status`."""

import pytest

from recipe.runtime.slurm import nodes_in

STATUS = """======== Autoscaler status ========
Node status
---------------------------------------------------------------
Active:
 1 node_head
 2 node_worker
Pending:
 1 node_late
Recent failures:
 (no failures)
"""


@pytest.mark.parametrize(
    ("status", "nodes"), [(STATUS, 3), (STATUS.replace("Pending:\n 1 node_late\n", ""), 3), ("no cluster", 0), ("", 0)]
)
def test_active_nodes_are_counted_and_no_others(status: str, nodes: int):
    assert nodes_in(status) == nodes
