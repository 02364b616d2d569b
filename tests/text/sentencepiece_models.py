"""Models of SentencePiece as the export converts them: the tokens of libhusk_text against those of
the package sentencepiece. Run by name:

    python tests/text/sentencepiece_models.py [--texts 3000] [--seed 1]

Needs transformers, sentencepiece and protobuf. A model of each kind, BPE with bytes as in Llama and
Unigram with a map of characters as in T5, is trained on this repository's pages. Texts are words of
the pages and characters of other scripts. The exit status is 1 if tokens differ."""

import argparse
import json
import pathlib
import random
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "compiler" / "torch"))

from husk.language import attachments  # noqa: E402
from husk.text.tokenizer import Tokenizer  # noqa: E402

PAGES = ("README.md", "runtime/TEXT.md", "CONTRIBUTING.md")
# The name of the file, the class of transformers, and what the trainer is given.
KINDS = {
  "llama": (
    "tokenizer.model",
    "LlamaTokenizer",
    {
      "model_type": "bpe",
      "byte_fallback": True,
      "pad_id": -1,
      "normalization_rule_name": "identity",
      "remove_extra_whitespaces": False,
    },
  ),
  "t5": (
    "spiece.model",
    "T5Tokenizer",
    {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
  ),
}
# Latin letters with marks, Han, emoji, Greek, and characters that have other forms.
SCRIPTS = ((0x20, 0x7E), (0xA0, 0x24F), (0x4E00, 0x4FFF), (0x1F600, 0x1F64F), (0x370, 0x3FF))
SCRIPTS += ((0xFB00, 0xFB06), (0xFF01, 0xFF5E))


def trained(folder, kind, corpus):
  """The package's model of a kind, and the tokenizer that the export makes of its file."""
  import sentencepiece  # pyright: ignore[reportMissingImports]

  name, owner, settings = KINDS[kind]
  sentencepiece.SentencePieceTrainer.train(
    input=str(corpus),
    model_prefix=str(folder / "trained"),
    vocab_size=1000,
    minloglevel=2,
    **settings,
  )
  (folder / "trained.model").rename(folder / name)
  (folder / "config.json").write_text(json.dumps({"model_type": kind}))
  (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": owner}))
  text = attachments._of_folder(folder)["tokenizer"]
  return sentencepiece.SentencePieceProcessor(str(folder / name)), Tokenizer(text)


def text_of(words, draw):
  text = " ".join(draw.choice(words) for _ in range(draw.randint(1, 12)))
  if draw.random() < 0.4:
    text += " " + "".join(chr(draw.randint(*draw.choice(SCRIPTS))) for _ in range(6))
  return text


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--texts", type=int, default=3000)
  parser.add_argument("--seed", type=int, default=1)
  options = parser.parse_args()
  draw, different = random.Random(options.seed), 0
  pages = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
  with tempfile.TemporaryDirectory() as temporary:
    corpus = pathlib.Path(temporary) / "corpus.txt"
    corpus.write_text(pages, encoding="utf-8")
    for kind in KINDS:
      folder = pathlib.Path(temporary) / kind
      folder.mkdir()
      right, ours = trained(folder, kind, corpus)
      texts = [text_of(pages.split(), draw) for _ in range(options.texts)]
      count = sum(ours.encode(text) != right.encode(text) for text in texts)
      print(f"{kind}: {count} of {len(texts)} texts differ")
      different += count
  return 1 if different else 0


if __name__ == "__main__":
  sys.exit(main())
