package husk;

/** What a value of a function is. */
public enum Kind {
  TENSOR(Constants.HUSK_VALUE_TENSOR),
  INT(Constants.HUSK_VALUE_INT),
  FLOAT(Constants.HUSK_VALUE_FLOAT),
  BOOL(Constants.HUSK_VALUE_BOOL);

  final int code;

  Kind(int code) {
    this.code = code;
  }

  static Kind of(long code) {
    for (Kind kind : values()) {
      if (kind.code == code) return kind;
    }
    throw new IllegalStateException("the library is newer than the binding: kind " + code);
  }
}
