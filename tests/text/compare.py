"""The tokenizers of libhusk_text against the package `tokenizers`, run by name:

    python tests/text/compare.py [--texts 100000] [--seed 0] [--tokenizer tokenizer.json]
    python tests/text/compare.py --golden

Each kind of splitting texts that a GGUF file may name gets all code points, in several places of a
word, and texts of a seeded generator in many scripts. --tokenizer takes a file in place of a small
vocabulary that is trained on this repository's pages. --golden writes golden.json, which
text_test.cpp reads. The exit status is 1 if tokens or decoded texts differ."""

import argparse
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
  ids = {token["content"]: token["id"] for token in fields["added_tokens"]}
  if kind == "llama-bpe" and "<|im_start|>" in ids:  # a token before each text
    token = "<|im_start|>"
    fields["post_processor"] = {
      "type": "TemplateProcessing",
      "single": [
        {"SpecialToken": {"id": token, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
      ],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]}},
    }
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


def text_of(source):
  scripts = source.sample(SCRIPTS, source.randint(1, 4))
  parts = [
    source.choice(source.choice(scripts)) if source.random() < 0.93 else source.choice(WORDS)
    for _ in range(source.randint(1, 60))
  ]
  if source.random() < 0.3:
    parts = [part * source.randint(1, 3) for part in parts]
  return "".join(parts)


class Pair:
  """A tokenizer of each kind."""

  def __init__(self, fields):
    text = json.dumps(fields)
    self.own, self.right = Tokenizer(text), tokenizers.Tokenizer.from_str(text)

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
    if self.own.decode(cut) != self.right.decode(cut, skip_special_tokens=False):
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


def compare(fields, count, seed):
  wrong = 0
  for kind in KINDS:
    begin = time.perf_counter()
    pair = Pair(of_kind(fields, kind))
    points = code_points(pair)
    source = random.Random(seed)
    found = [text for _ in range(count) if (text := pair.difference(text_of(source)))]
    wrong += len(points) + len(found)
    print(
      f"{kind}: {len(points)} of 1,112,064 code points and {len(found)} of {count:,} texts differ, "
      f"{time.perf_counter() - begin:.0f} s",
      flush=True,
    )
    for point in points[:10]:
      print(f"  U+{point:04X} {unicodedata.name(chr(point), '?')}")
    for text in found[:5]:
      print(f"  {text}")
  return wrong


def write_golden():
  fields = trained()
  kinds = {}
  for kind in KINDS:
    made = of_kind(fields, kind)
    right = tokenizers.Tokenizer.from_str(json.dumps(made))
    source = random.Random(7)
    texts = [
      "",
      " ",
      "Hello, world! It's 2026.",
      "a \u3000<added> \nb",
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
    changed = {key: value for key, value in made.items() if value != fields[key] and key != "model"}
    prefers_words = made["model"]["ignore_merges"]
    kinds[kind] = {"fields": changed, "ignore_merges": prefers_words, "cases": cases}
  path = HERE / "golden.json"
  rows = ",\n".join(
    f"{json.dumps(kind)}: {json.dumps(row, ensure_ascii=False)}" for kind, row in kinds.items()
  )
  path.write_text(
    f'{{"tokenizer": {json.dumps(fields, ensure_ascii=False)},\n"kinds": {{\n{rows}\n}}}}\n'
  )
  print(f"{path}: {path.stat().st_size:,} bytes")


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--texts", type=int, default=100_000)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--tokenizer", type=pathlib.Path)
  parser.add_argument("--golden", action="store_true")
  options = parser.parse_args()
  if options.golden:
    write_golden()
    return 0
  fields = json.loads(options.tokenizer.read_text()) if options.tokenizer else trained()
  return 1 if compare(fields, options.texts, options.seed) else 0


if __name__ == "__main__":
  sys.exit(main())
