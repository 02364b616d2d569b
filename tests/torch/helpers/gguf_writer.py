"""Writes GGUF files, and says in float64 what their blocks stand for: one element after the other,
as the pages of the format describe it."""

import struct

import numpy as np

# Metadata: the number of a type and how struct calls it.
SCALARS = {"u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q")}


def text(value):
  data = value.encode()
  return struct.pack("<Q", len(data)) + data


def typed(value):
  """A value of the metadata, with its type."""
  if isinstance(value, bool):
    return struct.pack("<I?", 7, value)
  if isinstance(value, int):
    return struct.pack("<II", 4, value)
  if isinstance(value, float):
    return struct.pack("<If", 6, value)
  if isinstance(value, str):
    return struct.pack("<I", 8) + text(value)
  parts = [typed(one) for one in value]
  return (
    struct.pack("<I", 9)
    + parts[0][:4]
    + struct.pack("<Q", len(parts))
    + b"".join(part[4:] for part in parts)
  )


def file(metadata, tensors, version=3, alignment=32):
  """The bytes of a file. `tensors`: name -> (number of the type, shape in torch's order, bytes)."""
  infos, data = b"", b""
  for name, (kind, shape, content) in tensors.items():
    data += b"\0" * (-len(data) % alignment)
    infos += text(name) + struct.pack("<I", len(shape))
    infos += b"".join(struct.pack("<Q", size) for size in reversed(shape))
    infos += struct.pack("<IQ", kind, len(data))
    data += content
  head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
  head += b"".join(text(key) + typed(value) for key, value in metadata.items()) + infos
  return head + b"\0" * (-len(head) % alignment) + data


def half(block, at):
  return float(np.frombuffer(block[at : at + 2].tobytes(), np.float16)[0])


def low_high(block, at, count):
  """`count` codes of 4 bits: the low halves of bytes, then the high ones."""
  codes = block[at : at + count // 2].astype(int)
  return np.concatenate([codes & 15, codes >> 4])


def fifth_bits(block, at):
  word = int.from_bytes(block[at : at + 4].tobytes(), "little")
  return np.array([word >> i & 1 for i in range(32)]) << 4


def q4_0(b):
  return (low_high(b, 2, 32) - 8) * half(b, 0)


def q4_1(b):
  return low_high(b, 4, 32) * half(b, 0) + half(b, 2)


def q5_0(b):
  return ((low_high(b, 6, 32) | fifth_bits(b, 2)) - 16) * half(b, 0)


def q5_1(b):
  return (low_high(b, 8, 32) | fifth_bits(b, 4)) * half(b, 0) + half(b, 2)


def q8_0(b):
  return b[2:].view(np.int8).astype(float) * half(b, 0)


def scale_and_least(b, at, j):
  q = b[at : at + 12].astype(int)
  if j < 4:
    return q[j] & 63, q[j + 4] & 63
  return q[j + 4] & 15 | (q[j - 4] >> 6) << 4, q[j + 4] >> 4 | (q[j] >> 6) << 4


def q4_k(b):
  parts = []
  for j in range(8):
    scale, least = scale_and_least(b, 4, j)
    codes = b[16 + 32 * (j // 2) : 48 + 32 * (j // 2)].astype(int) >> 4 * (j % 2) & 15
    parts.append(half(b, 0) * scale * codes - half(b, 2) * least)
  return np.concatenate(parts)


def q5_k(b):
  parts = []
  for j in range(8):
    scale, least = scale_and_least(b, 4, j)
    codes = b[48 + 32 * (j // 2) : 80 + 32 * (j // 2)].astype(int) >> 4 * (j % 2) & 15
    codes |= (b[16:48].astype(int) >> j & 1) << 4
    parts.append(half(b, 0) * scale * codes - half(b, 2) * least)
  return np.concatenate(parts)


def q6_k(b):
  scales, result = b[192:208].view(np.int8), np.zeros(256)
  for i in range(256):
    part, quarter, place = i // 128, i % 128 // 32, i % 32
    low = int(b[64 * part + 32 * (quarter % 2) + place]) >> 4 * (quarter // 2) & 15
    high = int(b[128 + 32 * part + place]) >> 2 * quarter & 3
    result[i] = half(b, 208) * int(scales[i // 16]) * ((low | high << 4) - 32)
  return result


def q2_k(b):
  result = np.zeros(256)
  for i in range(256):
    code = int(b[16 + 32 * (i // 128) + i % 32]) >> 2 * (i % 128 // 32) & 3
    scale, least = int(b[i // 16]) & 15, int(b[i // 16]) >> 4
    result[i] = half(b, 80) * scale * code - half(b, 82) * least
  return result


def q3_k(b):
  result = np.zeros(256)
  for i in range(256):
    low = int(b[32 + 32 * (i // 128) + i % 32]) >> 2 * (i % 128 // 32) & 3
    high = int(b[i % 32]) >> i // 32 & 1
    j = i // 16
    scale = int(b[96 + j % 8]) >> 4 * (j // 8) & 15 | (int(b[104 + j % 4]) >> 2 * (j // 4) & 3) << 4
    result[i] = half(b, 108) * (scale - 32) * (low + 4 * high - 4)
  return result


IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def iq4_nl(b):
  return IQ4[low_high(b, 2, 32)] * half(b, 0)


def iq4_xs(b):
  high, parts = int(b[2]) | int(b[3]) << 8, []
  for j in range(8):
    scale = int(b[4 + j // 2]) >> 4 * (j % 2) & 15 | (high >> 2 * j & 3) << 4
    parts.append(half(b, 0) * (scale - 32) * IQ4[low_high(b, 8 + 16 * j, 32)])
  return np.concatenate(parts)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mxfp4(b):
  return E2M1[low_high(b, 1, 32)] * 2.0 ** (int(b[0]) - 127)


# By name: the number, the elements and bytes of a block, where its halves are, and its numbers.
BLOCKS = {
  "Q4_0": (2, 32, 18, (0,), q4_0),
  "Q4_1": (3, 32, 20, (0, 2), q4_1),
  "Q5_0": (6, 32, 22, (0,), q5_0),
  "Q5_1": (7, 32, 24, (0, 2), q5_1),
  "Q8_0": (8, 32, 34, (0,), q8_0),
  "Q2_K": (10, 256, 84, (80, 82), q2_k),
  "Q3_K": (11, 256, 110, (108,), q3_k),
  "Q4_K": (12, 256, 144, (0, 2), q4_k),
  "Q5_K": (13, 256, 176, (0, 2), q5_k),
  "Q6_K": (14, 256, 210, (208,), q6_k),
  "IQ4_NL": (20, 32, 18, (0,), iq4_nl),
  "IQ4_XS": (23, 256, 136, (0,), iq4_xs),
  "MXFP4": (39, 32, 17, (), mxfp4),
}


def random_blocks(name, n, k, seed=0):
  """The entry of a tensor of n x k for `file`, and its numbers in float64."""
  kind, elements, size, halves, numbers = BLOCKS[name]
  random = np.random.default_rng(seed)
  blocks = random.integers(0, 256, (n * k // elements, size), dtype=np.uint8)
  for at in halves:
    value = random.standard_normal((len(blocks), 1)).astype(np.float16) * np.float16(0.05)
    value[0] = 0  # a block without a scale
    blocks[:, at : at + 2] = value.view(np.uint8)
  if not halves:
    blocks[:, 0] = random.integers(100, 130, len(blocks))
  matrix = np.stack([numbers(block) for block in blocks]).reshape(n, k)
  return (kind, (n, k), blocks.tobytes()), matrix


def plain(array, kind=0):
  """The entry of a tensor of floats: 0 for f32, 1 for f16."""
  dtype = {0: np.float32, 1: np.float16}[kind]
  return kind, array.shape, array.astype(dtype).tobytes()
