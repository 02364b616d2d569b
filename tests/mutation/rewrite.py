"""Finds the checks in a C++ source of the runtime, and makes each of them removable at run time.

A check is one of these; `refuses` and `accepts` say which value of a condition removes it:

  if (A || B) return invalid_file(...);        A refuses, B refuses
  if (A && B) return Status::ok;               A accepts, B accepts
  return invalid_file(...);
  return A && B ? Status::ok : bad(...);       A accepts, B accepts
  good = A && B;                               A accepts, B accepts
  bool is_valid() { return A && B; }           A accepts, B accepts
  HUSK_TRY(call());  return call();            the call's failure

An operand becomes `mutated(NUMBER, VALUE, A)`, a call that returns a status
`ignored(NUMBER, call())`: see mutant.h. Operands are still evaluated, since some compute what is
used later. The line after a comment `// Redundant: REASON.` has no check.

The sources are formatted by clang-format and use few forms, so tokens and brackets are enough; a
form that is not understood has no mutant or does not compile.
"""

import dataclasses
import re

TOKEN = re.compile(
  r"//[^\n]*|/\*.*?\*/|^[ ]*\#(?:[^\n\\]|\\.)*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
  r"|[A-Za-z_]\w*|\d(?:[\w.]|[eEpP][+-])*|::|->|\|\||&&|<<|[=!<>+*/|&^%-]=|\+\+|--|\s+|.",
  re.DOTALL | re.MULTILINE,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}

# Calls that make the status or the text of a refusal.
REFUSALS = (
  "invalid_file invalid_input fail bad no_artifact unusable overflow failed_guard failed_stride "
  "too_small misaligned_at no_variant about"
).split()
REFUSAL = re.compile(
  rf"(?:(?:{'|'.join(REFUSALS)})\(.*|to_status\((?:HUSK_\w+|status)\)|(?:\w+_)?status|\"[^\"]*\""
  r"|kBad\w+|Status\(HUSK_\w+\))",
  re.DOTALL,
)
# Variables that hold whether everything is right so far, and those that hold the opposite.
GOOD = "good valid *valid once aligned block fits bound tensor".split()
WRONG = ["wrong"]
# Functions whose result is true if something is wrong.
WRONG_FUNCTIONS = "overlap find power_overflows to_integer".split()
# Functions that return early if nothing is to do.
SHORTCUTS = "add gather remember sort unbind_outputs".split()
# Functions of type bool that check nothing.
QUESTIONS = (
  "compare_names next_part reaches meet is_dynamic unchanged plan_at_bounds plan_parallel "
  "update_io_addresses takes_room find_near find_gap changed is_true is_false is_equal is_apart "
  "can_be_node pdl_waits_first is_unknown is_empty is_static is_placed update"
).split()


@dataclasses.dataclass
class Mutant:
  number: int
  file: str
  line: int
  text: str  # the condition or call that is removed

  def condition(self):
    return " ".join(self.text.split())

  def __str__(self):
    return f"{self.file}:{self.line}: {self.condition()}"


class Tokens:
  """The tokens of a source. `code` has the indices of those that are neither space nor comment."""

  def __init__(self, text):
    self.text = [m.group() for m in TOKEN.finditer(text)]
    self.line = []
    line = 1
    for token in self.text:
      self.line.append(line)
      line += token.count("\n")
    self.redundant = set()
    last = 0  # of the lines of the comment
    for i, token in enumerate(self.text):
      if token.startswith("// Redundant:"):
        alone = self.line[i - 1] < self.line[i] or not self.text[i - 1].strip()
        last = self.line[i] + 1 if alone and "\n" in self.text[i - 1] else 0
        self.redundant.add(last or self.line[i])
      elif token.startswith("//") and self.line[i] == last:
        self.redundant.remove(last)
        last += 1
        self.redundant.add(last)
    skipped = ("//", "/*")
    self.code = [
      i
      for i, token in enumerate(self.text)
      if token.strip() and not token.startswith(skipped) and not token.lstrip().startswith("#")
    ]
    self.of = [self.text[i] for i in self.code]
    self.closing = {}
    stack = []
    for i, token in enumerate(self.of):
      if token in CLOSING:
        stack.append(i)
      elif token in CLOSING.values():
        self.closing[stack.pop()] = i

  def join(self, begin, end):
    """The source text of the code tokens begin..end-1."""
    if begin >= end:
      return ""
    return "".join(self.text[self.code[begin] : self.code[end - 1] + 1])

  def split(self, begin, end, separator):
    """The ranges between the separators outside of brackets."""
    parts, i, first = [], begin, begin
    while i < end:
      if self.of[i] == separator:
        parts.append((first, i))
        first = i + 1
      i = self.closing.get(i, i) + 1
    return [*parts, (first, end)]

  def find(self, begin, end, *wanted):
    """The first of the wanted tokens outside of brackets, or `end`."""
    i = begin
    while i < end and self.of[i] not in wanted:
      i = self.closing.get(i, i) + 1
    return i

  def statement_end(self, i):
    """The index behind the statement that begins at `i`."""
    if self.of[i] in ("if", "for", "while", "switch"):
      end = self.statement_end(self.closing[i + 1] + 1)
      if self.of[i] == "if" and end < len(self.of) and self.of[end] == "else":
        end = self.statement_end(end + 1)
      return end
    if self.of[i] == "{":
      return self.closing[i] + 1
    return self.find(i, len(self.of), ";", "}") + 1


class Rewriter:
  def __init__(self, file, text, first_number):
    self.tokens = Tokens(text)
    self.file = file
    self.mutants = []
    self.next = first_number
    self.before = {}  # by code token: text that is put before it, outermost first
    self.after = {}  # by code token: text that is put behind it
    self.done = set()  # ranges that have a mutant

  def mutate(self, begin, end, call):
    line = self.tokens.line[self.tokens.code[begin]]
    if line in self.tokens.redundant or (begin, end) in self.done:
      return
    self.done.add((begin, end))
    self.mutants.append(Mutant(self.next, self.file, line, self.tokens.join(begin, end)))
    self.before.setdefault(begin, []).append(call.format(self.next))
    self.after.setdefault(end - 1, []).insert(0, "))")
    self.next += 1

  def condition(self, begin, end, value, whole=True, except_for=""):
    """Makes mutants of a condition that is removed by `value`."""
    t = self.tokens
    literal = "true" if value else "false"
    inner = begin
    while t.of[inner] == "(" and t.closing[inner] == end - 1 and inner + 1 < end - 1:
      inner, end = inner + 1, end - 1
    begin, stop = inner, end
    if begin == stop or t.join(begin, stop) in ("true", "false", except_for):
      return
    question = t.find(begin, stop, "?")
    assigned = t.find(begin, stop, "=")
    parts = t.split(begin, stop, "&&" if value else "||")
    others = t.split(begin, stop, "||" if value else "&&")
    if assigned < stop:
      if whole:
        self.condition(assigned + 1, stop, value)
      return
    if question < stop:
      for part in t.split(question + 1, stop, ":"):
        self.condition(*part, value)
      return
    # `a || b && c` splits at || first.
    if not value and len(parts) > 1 or value and len(parts) > 1 and len(others) == 1:
      for part in parts:
        self.condition(*part, value, except_for=except_for)
      return
    if whole:
      self.mutate(begin, stop, f"::husk::mutated({{}}, {literal}, (")
    if len(others) > 1:
      for part in others:
        self.condition(*part, value, whole=False)
    elif t.of[begin] == "!" and t.of[begin + 1] == "(" and t.closing[begin + 1] == stop - 1:
      self.condition(begin + 1, stop, not value, whole=False)

  def is_refusal(self, begin, end, function):
    """Whether the statement ends by a refusal. The bool functions of `function` refuse too."""
    t = self.tokens
    if t.of[begin] == "{":
      begin, end = begin + 1, end - 1
      if begin == end:
        return False
      while t.statement_end(begin) < end:
        begin = t.statement_end(begin)
      return self.is_refusal(begin, end, function)
    if t.of[begin] == "return":
      returned = t.join(begin + 1, end - 1)
      if function and returned == ("true" if function in WRONG_FUNCTIONS else "false"):
        return function not in QUESTIONS
      return not returned or bool(REFUSAL.fullmatch(returned))
    if t.of[begin] == "if":
      return False
    return bool(re.match(rf"status = (?:{'|'.join(REFUSALS)})\(|good = false", t.join(begin, end)))

  def accepts(self, begin, end, function):
    text = self.tokens.join(begin, end).strip("{} \n")
    yes = "false" if function in WRONG_FUNCTIONS else "true"
    return text in ("return Status::ok;", "continue;") or (function and text == f"return {yes};")

  def refused_next(self, i, function):
    """Whether a refusal follows `i`, after at most two statements."""
    t = self.tokens
    for _ in range(3):
      if t.of[i] == "}":
        return False
      end = t.statement_end(i)
      if t.of[i] == "if":
        return self.is_refusal(t.closing[i + 1] + 1, end, function)
      if self.is_refusal(i, end, function):
        return True
      if t.of[i] in ("for", "return", "{"):
        return False
      i = end
    return False

  def check_if(self, i, function):
    t = self.tokens
    begin, end = i + 2, t.closing[i + 1]
    begin = t.find(begin, end, ";") + 1 if t.find(begin, end, ";") < end else begin
    body, stop = end + 1, t.statement_end(end + 1)
    if self.is_refusal(body, stop, function):
      if re.match(rf"return (?:{'|'.join(REFUSALS)})\(", t.join(stop, stop + 3)):
        return  # refused in any case: the condition chooses the message
      value = False
    elif self.accepts(body, stop, function) and self.refused_next(stop, function):
      value = True
    else:
      return
    assigned = t.find(begin, end, "=")
    if assigned < end and assigned > begin + 1:  # a declaration
      name = t.of[assigned - 1]
      line = t.line[t.code[begin]]
      self.mutants.append(Mutant(self.next, self.file, line, t.join(begin, end)))
      self.after.setdefault(end - 1, []).append(f"; ::husk::mutated({self.next}, false, {name})")
      self.next += 1
    else:
      self.condition(begin, end, value)

  def check_return(self, i, kind, function):
    t = self.tokens
    begin, end = i + 1, t.find(i, len(t.of), ";")
    question = t.find(begin, end, "?")
    if question < end:
      yes, no = t.split(question + 1, end, ":")[:2]
      refuses = [bool(REFUSAL.fullmatch(t.join(*part))) for part in (yes, no)]
      if refuses[0] != refuses[1]:
        self.condition(begin, question, refuses[1])
    elif kind == "bool" and function not in QUESTIONS:
      self.condition(begin, end, function not in WRONG_FUNCTIONS)
    elif kind == "Status" and re.match(r"(?:\w+(?:\.|->|::))*\w+\(", t.join(begin, end)):
      opening = t.find(begin, end, "(")
      name = t.of[opening - 1]
      if t.closing[opening] == end - 1 and name not in (*REFUSALS, "Builder", "VariantVerifier"):
        if not REFUSAL.fullmatch(t.join(begin, end)):
          self.mutate(begin, end, "::husk::ignored({}, (")

  def check_assignment(self, i):
    """`name = condition`, where `i` is the equals sign."""
    t = self.tokens
    name = t.of[i - 1]
    pointer = t.of[i - 2] == "*" and t.of[i - 3] in (";", "{", "}")
    if pointer:
      name = "*" + name
    end = t.find(i, len(t.of), ";", ")", ",")
    if name not in (*GOOD, *WRONG) or t.of[i - 2] in ("&", "."):
      return
    if t.of[i - 2] == "*" and not pointer:
      return
    if not re.search(r"[=!<>|&(]", t.join(i + 1, end)) or t.of[i + 1] == "[":  # a lambda
      return
    self.condition(i + 1, end, name in GOOD, except_for=name)

  def functions(self):
    """Yields the type and name of the function that each code token belongs to."""
    t = self.tokens
    i, until, kind, name = 0, 0, "", ""
    for i, token in enumerate(t.of):
      if i >= until:
        kind = name = ""
        if token in ("Status", "bool", "char", "void") and t.of[i + 1] != "(":
          opening = i + 1
          while re.fullmatch(r"\w+|::|\*", t.of[opening]):
            opening += 1
          if t.of[opening] == "(":
            body = t.closing[opening] + 1
            while t.of[body] in ("const", "override"):
              body += 1
            if t.of[body] == "{":
              kind, name, until = token, t.of[opening - 1], t.closing[body]
      yield kind, name

  def run(self):
    """Returns the source with removable checks."""
    t = self.tokens
    for i, (kind, name) in enumerate(list(self.functions())):
      function = name if kind == "bool" else ""
      if not kind:
        continue
      if t.of[i] == "if" and name not in SHORTCUTS:
        self.check_if(i, function)
      elif t.of[i] == "return":
        self.check_return(i, kind, function)
      elif t.of[i] == "=":
        self.check_assignment(i)
      elif t.of[i] == "HUSK_TRY":
        self.mutate(i + 2, t.closing[i + 1], "::husk::ignored({}, (")
    out, numbers = [], {token: i for i, token in enumerate(t.code)}
    for i, token in enumerate(t.text):
      n = numbers.get(i, -1)
      out += [*self.before.get(n, []), token, *self.after.get(n, [])]
    return "".join(out)
