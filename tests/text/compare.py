"""The tokenizers of libhusk_text against the package `tokenizers`, run by name:

    python tests/text/compare.py [--texts 100000] [--seed 0] [--kinds NAME...]
    python tests/text/compare.py --tokenizer tokenizer.json [--bytes]
    python tests/text/compare.py --golden

Each kind of splitting texts that a GGUF file may name gets all code points, in several places of a
word, and texts of a seeded generator. Every other text comes from neighborhoods of code points
anywhere in Unicode, so that all scripts occur. Code points that differ alone are counted once, and
are left out of these texts. The vocabularies are small ones, which are
trained on this repository's pages. --tokenizer takes a tokenizer.json or a GGUF file, as it is; or
with --bytes its vocabulary, in each kind of byte-level BPE. --charsmap takes the map of characters
of a GGUF file. --golden writes golden.json, which
text_test.cpp reads. The exit status is 1 if tokens or decoded texts differ."""

import argparse
import base64
import functools
import json
import pathlib
import random
import sys
import time
import unicodedata

import tokenizers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "compiler" / "torch"))

from husk.language import gguf_tokenizer  # noqa: E402
from husk.quantized import GgufFile  # noqa: E402
from husk.text import Tokenizer  # noqa: E402

KINDS = ("gpt-2", "smollm", "llama-bpe", "qwen2")
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
# Characters that a text takes at random; each text comes from a few of these.
SCRIPTS = [
  "abcdefghijklmnopqrstuvwxyz ETAOIN  ",
  "0123456789.,",
  "'s't're've'll'd'm'S'T ",
  "\n\t\r \u00a0\u2003\u0085\u180e\u200b",
  "éèüñßçøåœ",
  "абвгдежз ",
  "αβγδε ",
  "中文字符日本語ひらがなカタカナ한국어",
  "\U0001f600\U0001f44d\U0001f3fd\u200d\U0001f468\U0001f1eb\U0001f1f7",
  "e\u0301a\u0308\u0327\u0323n\u0303",
  '!@#$%^&*()_+-=[]{};:"\\|,.<>/?',
  "\u017f\u212aİı",
  "अआइ्त ",
  "עברית عربي ",
  "½²①Ⅷ٣",
]
WORDS = [*SPECIAL, "the quick brown", " functions", "    return x", "<|im_", "<added>"]


def trained():
  """A small vocabulary, as the fields of a tokenizer.json."""
  model = tokenizers.Tokenizer(tokenizers.models.BPE())
  model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=420,
    initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    special_tokens=SPECIAL,
    show_progress=False,
  )
  root = HERE.parents[1]
  pages = [(root / name).read_text() for name in ("README.md", "schema/GLOSSARY.md")]
  model.train_from_iterator([*pages, "".join(SCRIPTS) * 4], trainer)
  return json.loads(model.to_str())


def of_kind(fields, kind):
  """The tokenizer.json of a kind."""
  fields = json.loads(json.dumps(fields))
  splits = gguf_tokenizer.SPLITS[kind]
  fields["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splits}
  fields["normalizer"] = {"type": "NFC"} if kind in gguf_tokenizer.COMPOSED else None
  fields["decoder"] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
  }
  fields["model"]["ignore_merges"] = kind == "llama-bpe"
  begin = "<|im_start|>"
  if kind == "llama-bpe" and any(one["content"] == begin for one in fields["added_tokens"]):
    with_begin(fields, begin)
  if kind == "qwen2":  # a token that takes the white space beside it, and is found after NFC
    fields["added_tokens"].append(
      {
        "id": 1 + max(fields["model"]["vocab"].values()),
        "content": "<added>",
        "single_word": False,
        "lstrip": True,
        "rstrip": True,
        "normalized": True,
        "special": False,
      }
    )
  return fields


SPACE = "\u2581"


def pages():
  root = HERE.parents[1]
  texts = [(root / name).read_text() for name in ("README.md", "schema/GLOSSARY.md")]
  return [*texts, "".join(SCRIPTS[:6]) * 4]  # some scripts have no tokens


@functools.cache
def spaced_model():
  model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True))
  model.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
  )
  model.train_from_iterator(pages(), trainer)
  return model.to_str()


def spaced(normalizer, pre_tokenizer, decoder, byte_fallback):
  """A BPE whose tokens have a character for a space."""
  fields = json.loads(spaced_model())
  vocab = fields["model"]["vocab"]
  for byte in range(256):
    vocab[f"<0x{byte:02X}>"] = len(vocab)
  fields["model"]["byte_fallback"] = byte_fallback
  return {**fields, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder}


def with_begin(fields, token="<s>"):
  number = next(one["id"] for one in fields["added_tokens"] if one["content"] == token)
  fields["post_processor"] = {
    "type": "TemplateProcessing",
    "single": [
      {"SpecialToken": {"id": token, "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
  }
  return fields


TO_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
FROM_SPACE = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
BYTES = [FROM_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def metaspace(scheme, split):
  return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def llama():
  """As Llama 2 and Mistral."""
  prepend = {"type": "Prepend", "prepend": SPACE}
  normalizer = {"type": "Sequence", "normalizers": [prepend, TO_SPACE]}
  decoder = {"type": "Sequence", "decoders": [*BYTES, STRIP]}
  fields = with_begin(spaced(normalizer, None, decoder, True))
  for token in fields["added_tokens"]:  # one of them is found after the text was normalized
    token["normalized"] = token["content"] == "</s>"
  return fields


def llama_first():
  """The same as transformers converts it today."""
  decoder = {"type": "Sequence", "decoders": [*BYTES, STRIP]}
  return with_begin(spaced(None, metaspace("first", False), decoder, True))


def gemma():
  split = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
  }
  return with_begin(spaced(TO_SPACE, split, {"type": "Sequence", "decoders": BYTES}, True))


def metaspace_bpe():
  """Words with a Metaspace before each, and no tokens for bytes."""
  words = {
    "type": "Sequence",
    "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("always", True)],
  }
  dashes = {"type": "Replace", "pattern": {"Regex": "[-_]+"}, "content": " - "}
  steps = [{"type": "Lowercase"}, dashes]
  normalizer = {"type": "Sequence", "normalizers": steps}
  return spaced(normalizer, words, metaspace("always", True), False)


def split_bpe():
  """Splits by a character, with each behavior, and unknown characters that are not fused."""
  parts = [
    {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}
    for pattern, behavior in (
      ("[,.]", "MergedWithPrevious"),
      ("[!?]", "MergedWithNext"),
      ("\\s", "Removed"),
    )
  ]
  words = {"type": "Sequence", "pretokenizers": [*parts, metaspace("never", True)]}
  fields = spaced({"type": "NFC"}, words, metaspace("never", True), False)
  fields["model"]["fuse_unk"] = False
  return fields


def charsmap():
  """A map of characters as SentencePiece has it, in base64: the file of --charsmap, or a small one,
  which has rows for one character, for two, and for a group that a reader sees as one."""
  if CHARSMAP:
    return CHARSMAP[0]
  rows = {"\uff21": "A", "\u2460": "1", "\u00a0": " ", "\t": " ", "e\u0301": "\u00e9", "\u00ad": ""}
  rows |= {"\ufb01": "fi", "\u3000": " "}
  return base64.b64encode(double_array(rows)).decode()


def double_array(rows):
  """A double array as Darts-clone makes it, by trying offsets from the first one on."""
  values, texts = {}, b""
  for key, text in rows.items():
    values[key.encode()] = len(texts)
    texts += text.encode() + b"\0"
  units, used, offsets = {0: 0}, {0}, set()

  def place(node, prefix):
    labels = {key[len(prefix)] for key in values if key.startswith(prefix) and key != prefix}
    leaf = prefix in values
    numbers = labels | ({0} if leaf else set())
    offset = next(
      offset
      for offset in range(1, 1 << 20)
      if offset not in offsets
      and all(node ^ offset ^ number not in used for number in numbers)
      and 0 not in {node ^ offset ^ number for number in numbers}
    )
    offsets.add(offset)
    units[node] = (units[node] & 0xFF) | offset << 10 | leaf << 8
    base = node ^ offset
    used.update(base ^ number for number in numbers)
    if leaf:
      units[base] = 1 << 31 | values[prefix]
    for label in labels:
      units[base ^ label] = label
    for label in labels:
      place(base ^ label, prefix + bytes([label]))

  place(0, b"")
  count = (max(units) | 0xFF) + 1
  array = b"".join(units.get(i, 0).to_bytes(4, "little") for i in range(count))
  return len(array).to_bytes(4, "little") + array + texts


@functools.cache
def unigram_text():
  model = tokenizers.Tokenizer(tokenizers.models.Unigram())
  model.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
  trainer = tokenizers.trainers.UnigramTrainer(
    vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
  )
  model.train_from_iterator(pages(), trainer)
  return model.to_str()


def unigram_model():
  """A small unigram, whose tokens have a character for a space."""
  return json.loads(unigram_text())


def t5():
  """As T5: a map of characters, and spaces in a row that are one."""
  spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE}
  steps = [
    {"type": "Precompiled", "precompiled_charsmap": charsmap()},
    {"type": "Strip", "strip_left": False, "strip_right": True},
    spaces,
  ]
  return {
    **with_begin(unigram_model(), "</s>"),
    "normalizer": {"type": "Sequence", "normalizers": steps},
    "pre_tokenizer": metaspace("always", True),
    "decoder": metaspace("always", True),
  }


def xlm_r():
  words = [{"type": "WhitespaceSplit"}, metaspace("always", True)]
  fields = unigram_model()
  ids = {token["content"]: token["id"] for token in fields["added_tokens"]}
  return {
    **fields,
    "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap()},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": words},
    "post_processor": {
      "type": "RobertaProcessing",
      "sep": ["</s>", ids["</s>"]],
      "cls": ["<s>", ids["<s>"]],
      "trim_offsets": True,
      "add_prefix_space": False,
    },
    "decoder": metaspace("always", True),
  }


def unigram_bytes():
  """A unigram with tokens for bytes, as some models of Llama's form have it."""
  fields = unigram_model()
  for byte in range(256):
    fields["model"]["vocab"].append([f"<0x{byte:02X}>", -20.0])
  fields["model"]["byte_fallback"] = True
  decoder = {"type": "Sequence", "decoders": [*BYTES, STRIP]}
  return {
    **fields,
    "normalizer": None,
    "pre_tokenizer": metaspace("first", False),
    "decoder": decoder,
  }


@functools.cache
def wordpiece_text():
  names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
  model.normalizer = tokenizers.normalizers.BertNormalizer()
  model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  trainer = tokenizers.trainers.WordPieceTrainer(
    vocab_size=400, special_tokens=names, show_progress=False
  )
  model.train_from_iterator(pages(), trainer)
  model.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
  model.decoder = tokenizers.decoders.WordPiece()
  return model.to_str()


def bert():
  return json.loads(wordpiece_text())


def bert_cased():
  fields = bert()
  fields["normalizer"]["lowercase"] = False
  return fields


SPACED = {
  "llama": llama,
  "llama-first": llama_first,
  "gemma": gemma,
  "metaspace": metaspace_bpe,
  "split": split_bpe,
  "t5": t5,
  "xlm-r": xlm_r,
  "unigram-bytes": unigram_bytes,
  "bert": bert,
  "bert-cased": bert_cased,
}
CHARSMAP = []  # that of --charsmap


# The tokenizers of golden.json that share a vocabulary.
GOLDEN = {
  "spaced": (llama, llama_first, gemma, metaspace_bpe, split_bpe),
  "unigram": (t5, xlm_r, unigram_bytes),
  "wordpiece": (bert, bert_cased),
}


def text_of(source):
  scripts = source.sample(SCRIPTS, source.randint(1, 4))
  parts = [
    source.choice(source.choice(scripts)) if source.random() < 0.93 else source.choice(WORDS)
    for _ in range(source.randint(1, 60))
  ]
  if source.random() < 0.3:
    parts = [part * source.randint(1, 3) for part in parts]
  return "".join(parts)


@functools.cache
def assigned_points():
  """All code points that have a meaning, but for surrogates and private ones."""
  return [
    point for point in range(0x110000) if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")
  ]


def text_of_any_script(source, left_out):
  """Characters of one to three neighborhoods of code points, with spaces and ASCII between them."""
  points = assigned_points()
  parts = []
  for _ in range(source.randint(1, 3)):
    begin = source.randrange(len(points))
    around = [chr(point) for point in points[begin : begin + 60] if point not in left_out]
    for _ in range(source.randint(1, 20)):
      near = around and source.random() < 0.8
      parts.append(source.choice(around) if near else source.choice(" \na1.,'"))
  return "".join(parts)


class Pair:
  """A tokenizer of each kind."""

  def __init__(self, fields):
    text = json.dumps(fields)
    self.own, self.right = Tokenizer(text), tokenizers.Tokenizer.from_str(text)
    self.has_byte_tokens = fields["model"].get("byte_fallback", False)

  def knows_order(self, text):
    """Whether the package puts the marks of a text into the order of NFC. It has older tables, by
    which newer marks stay where they are; Python's are those of Unicode 14."""
    normal = unicodedata.normalize("NFC", text)
    found = self.own.encode(text, special=True)
    return found != self.right.encode(normal, add_special_tokens=True).ids

  def difference(self, text):
    """What differs, as a text; empty if nothing does."""
    for special in (False, True):
      found = self.own.encode(text, special=special)
      right = self.right.encode(text, add_special_tokens=special).ids
      if found != right:
        return f"tokens of {text!r}: {found[:20]}, not {right[:20]}"
    for skip in (False, True):
      if self.own.decode(right, skip_special=skip) != self.right.decode(
        right, skip_special_tokens=skip
      ):
        return f"text of {right}"
    cut = right[1:][: len(right) // 2]  # often inside of a character
    found, whole = self.own.decode(cut), self.right.decode(cut, skip_special_tokens=False)
    # The package replaces all tokens of bytes in a row if one of them is wrong, which a decoder of
    # tokens that come one by one cannot know.
    if found != whole and not (self.has_byte_tokens and "\ufffd" in whole):
      return f"text of {cut}"
    return ""


def code_points(pair):
  """Code points that give other tokens in a text."""
  points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
  around = "a{0} 1{0}b{0}{0} \n"

  def is_different(text):
    return pair.own.encode(text) != pair.right.encode(text, add_special_tokens=False).ids

  different = []
  for begin in range(0, len(points), 256):
    some = points[begin : begin + 256]
    if is_different("".join(around.format(point) for point in some)):
      different += [ord(point) for point in some if is_different(around.format(point))]
  return different


def compare(kinds, count, seed):
  """`kinds` has a function for each name, which makes a tokenizer.json."""
  wrong = 0
  for kind, make in kinds.items():
    begin = time.perf_counter()
    pair = Pair(make())
    points = code_points(pair)
    source = random.Random(seed)
    left_out, found, older = set(points), [], 0
    for number in range(count):
      text = text_of_any_script(source, left_out) if number % 2 else text_of(source)
      if not (difference := pair.difference(text)):
        continue
      if unicodedata.normalize("NFC", text) != text and not pair.knows_order(text):
        older += 1
      else:
        found.append(difference)
    wrong += len(points) + len(found)
    print(
      f"{kind}: {len(points)} of 1,112,064 code points and {len(found)} of {count:,} texts differ, "
      f"{older} only by the order of newer marks, {time.perf_counter() - begin:.0f} s",
      flush=True,
    )
    for point in points[:10]:
      print(f"  U+{point:04X} {unicodedata.name(chr(point), '?')}")
    for text in found[:5]:
      print(f"  {text}")
  return wrong


def golden_cases(fields):
  right = tokenizers.Tokenizer.from_str(json.dumps(fields))
  source = random.Random(7)
  texts = [
    "",
    " ",
    "Hello, world! It's 2026.",
    "a \u3000<added> \nb",
    "</s> x</s>",
    *(text_of(source)[:60] for _ in range(16)),
  ]
  cases = []
  for text in texts:
    tokens = right.encode(text, add_special_tokens=False).ids
    case = {
      "text": text,
      "tokens": tokens,
      "with_special": right.encode(text, add_special_tokens=True).ids,
      "decoded": right.decode(tokens, skip_special_tokens=False),
    }
    # What is missing is as without special tokens, and as the text.
    for name, same in (("with_special", "tokens"), ("decoded", "text")):
      if case[name] == case[same]:
        del case[name]
    cases.append(case)
  return cases


def write_golden():
  bases = {"tokenizer": trained()}
  variants = {kind: ("tokenizer", of_kind(bases["tokenizer"], kind)) for kind in KINDS}
  for base, kinds in GOLDEN.items():
    bases[base] = kinds[0]()
    variants |= {make.__name__: (base, make()) for make in kinds}
  kinds = {}
  for kind, (base, fields) in variants.items():
    others = bases[base]
    kinds[kind] = {
      "base": base,
      "fields": {
        key: value for key, value in fields.items() if key != "model" and value != others.get(key)
      },
      "model": {
        key: value for key, value in fields["model"].items() if value != others["model"].get(key)
      },
      "cases": golden_cases(fields),
    }
  path = HERE / "golden.json"
  rows = ",\n".join(
    f"{json.dumps(kind)}: {json.dumps(row, ensure_ascii=False)}" for kind, row in kinds.items()
  )
  heads = "".join(
    f"{json.dumps(base)}: {json.dumps(fields, ensure_ascii=False, separators=(',', ':'))},\n"
    for base, fields in bases.items()
  )
  path.write_text(f'{{{heads}"kinds": {{\n{rows}\n}}}}\n')
  print(f"{path}: {path.stat().st_size:,} bytes")


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--texts", type=int, default=100_000)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--tokenizer", type=pathlib.Path)
  parser.add_argument("--charsmap", type=pathlib.Path)
  parser.add_argument("--bytes", action="store_true")
  parser.add_argument("--kinds", nargs="*")
  parser.add_argument("--golden", action="store_true")
  options = parser.parse_args()
  if options.charsmap:
    data = bytes(GgufFile(options.charsmap).metadata["tokenizer.ggml.precompiled_charsmap"])
    CHARSMAP.append(base64.b64encode(data).decode())
  if options.golden:
    write_golden()
    return 0
  named = options.tokenizer
  if named and named.suffix == ".gguf":
    fields = json.loads(gguf_tokenizer.texts(GgufFile(named))["tokenizer"])
  else:
    fields = json.loads(named.read_text()) if named else trained()
  kinds = {kind: functools.partial(of_kind, fields, kind) for kind in KINDS}
  if not named:
    kinds |= SPACED
  elif not options.bytes:
    kinds = {named.name: lambda: fields}
  if options.kinds:
    kinds = {kind: kinds[kind] for kind in options.kinds}
  return 1 if compare(kinds, options.texts, options.seed) else 0


if __name__ == "__main__":
  sys.exit(main())
