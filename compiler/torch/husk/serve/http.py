"""The body of a request over HTTP, independent of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .errors import RequestError

# As Triton Inference Server has it (--http-max-input-size).
MAX_BODY_BYTES = 64 << 20


async def read_body(
  chunks: AsyncIterator[bytes], length: str | None, limit: int = MAX_BODY_BYTES
) -> bytes:
  """The body that arrives in chunks. `length` is the header Content-Length, if the client has sent
  it. A body of more than `limit` bytes is refused as soon as that is known; no more than `limit`
  bytes are kept."""
  if length is not None and length.isdecimal() and int(length[:20]) > limit:
    raise _too_large(limit)
  body = bytearray()
  async for chunk in chunks:
    if len(body) + len(chunk) > limit:
      raise _too_large(limit)
    body += chunk
  return bytes(body)


def _too_large(limit: int) -> RequestError:
  return RequestError(
    413,
    f"the body of the request has more than {limit} bytes, the max_body_bytes of the server: send "
    "less in one request, or set a larger max_body_bytes",
  )
