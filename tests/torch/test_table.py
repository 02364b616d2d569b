"""Every row of the table, exported by `husk.export`, run from C, is equal to eager in value, dtype, shape and stride."""

import pytest

import tools  # noqa: F401  (where the exporter lies)
import husk
import table
from husk import host_kernels

pytestmark = pytest.mark.skipif("avx2" not in host_kernels.isas(), reason="this machine has no AVX2")


@pytest.mark.parametrize("row", table.all_rows(), ids="-".join)
def test_row(row):
  table.run(*row)


@pytest.mark.parametrize("row", table.all_rows(refused=True), ids="-".join)
def test_refused_row(row, tmp_path):
  file, name = row
  refused = table.rows_of(file)[name]
  with pytest.raises((husk.Unsupported, RuntimeError), match=refused.refused):     # torch.export's own refusals are passed on
    husk.write({name: refused.function()}, tmp_path, targets=(table.TARGET,))
