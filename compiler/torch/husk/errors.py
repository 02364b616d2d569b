"""What can go wrong in an export."""


class Unsupported(Exception):
  """The model does something that a `.hir` cannot say. Names the construct and, where known, the model's source
  line."""


class CompileError(Exception):
  """A tool (g++, huskc) failed; the text is what it printed."""
