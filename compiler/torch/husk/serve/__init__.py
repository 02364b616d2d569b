"""Artifacts behind inference servers.

`husk.serve.mlserver` is a runtime of MLServer, `husk.serve.ray` a deployment of Ray Serve. Each
needs its server, which the extras `husk[mlserver]` and `husk[ray]` install. The other modules are
what the two share: `Model` runs an artifact for many clients.
"""

from .errors import RequestError, SettingsError
from .model import Model
from .settings import Settings

__all__ = ["Model", "RequestError", "Settings", "SettingsError"]
