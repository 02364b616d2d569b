"""The metrics of models behind MLServer. They are in the registry of prometheus_client, since
MLServer shows its own registry only if it has workers. This is a module of its own because MLServer
imports the module of a model anew for each load, and a metric may be registered once."""

from __future__ import annotations

import os

from prometheus_client import Gauge, Histogram

from .protocol import SECONDS

LABELS = ["model_name", "model_version"]
REQUESTS = [1, 2, 4, 8, 16, 32, 64, 128, 256]

# With workers, a gauge is the sum of those of the processes.
_mode = {"multiprocess_mode": "livesum"} if "PROMETHEUS_MULTIPROC_DIR" in os.environ else {}

run_seconds = Histogram(
  "husk_run_seconds", "Seconds of a run of a function", LABELS, buckets=SECONDS
)
batch_requests = Histogram(
  "husk_batch_requests", "Requests that were gathered for a run", LABELS, buckets=REQUESTS
)
requests = Gauge("husk_requests", "Requests that wait or run", LABELS, **_mode)
sequences = Gauge("husk_sequences", "Live sequences and streams", LABELS, **_mode)
