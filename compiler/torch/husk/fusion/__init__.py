"""Calls that become one call of Husk's together with the operations that follow them: an
activation, a residual, a batch norm.

An operator that takes such parts names them, with the functions that find them, in the order in
which it computes them (`chain.Chain`). It needs no walk through the graph of its own."""
