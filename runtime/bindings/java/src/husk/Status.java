package husk;

/** The reason of a failure. The header husk/types.h describes the values. */
public enum Status {
  INVALID_ARGUMENT(Constants.HUSK_INVALID_ARGUMENT),
  INVALID_FILE(Constants.HUSK_INVALID_FILE),
  UNSUPPORTED(Constants.HUSK_UNSUPPORTED),
  INVALID_INPUT(Constants.HUSK_INVALID_INPUT),
  OUT_OF_MEMORY(Constants.HUSK_OUT_OF_MEMORY),
  IO(Constants.HUSK_IO),
  DEVICE(Constants.HUSK_DEVICE),
  NOT_FOUND(Constants.HUSK_NOT_FOUND),
  KERNEL(Constants.HUSK_KERNEL),
  NEEDS_RESIZE(Constants.HUSK_NEEDS_RESIZE),
  LIMIT(Constants.HUSK_LIMIT),
  CANCELLED(Constants.HUSK_CANCELLED);

  final int code;

  Status(int code) {
    this.code = code;
  }

  static Status of(int code) {
    for (Status status : values()) {
      if (status.code == code) return status;
    }
    throw new IllegalStateException("the library is newer than the binding: status " + code);
  }
}
