"""Every row of the table, exported by `husk.export` and run from C, is equal to eager in value,
dtype, shape and stride."""

import built_tools  # noqa: F401  (where the exporter lies)
import husk
import pytest
import row_table
from husk.host import kernels as host_kernels

pytestmark = pytest.mark.skipif(
  "avx2" not in host_kernels.isas(), reason="this machine has no AVX2"
)


@pytest.mark.parametrize("row", row_table.all_rows(), ids="-".join)
def test_row(row):
  row_table.run(*row)


@pytest.mark.parametrize("row", row_table.all_rows(refused=True), ids="-".join)
def test_refused_row(row, tmp_path):
  file, name = row
  refused = row_table.rows_of(file)[name]
  with pytest.raises(
    (husk.Unsupported, RuntimeError), match=refused.refused
  ):  # refusals of torch.export are passed on
    husk.write({name: refused.function()}, tmp_path, targets=(row_table.TARGET,))
