package husk;

import java.nio.charset.StandardCharsets;

/** A failed call. Every handle stays usable after one. */
public final class HuskException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final Status status;
  private final int driverCode;
  private final int step;

  /** Made by the application, it is what a call of its own operator failed with. */
  public HuskException(Status status, String text) {
    this(status, 0, -1, text);
  }

  private HuskException(Status status, int driverCode, int step, String text) {
    super(text);
    this.status = status;
    this.driverCode = driverCode;
    this.step = step;
  }

  // Called by the library.
  static HuskException of(int status, int driverCode, int step, byte[] text) {
    return new HuskException(
        Status.of(status), driverCode, step, new String(text, StandardCharsets.UTF_8));
  }

  static HuskException invalid(String format, Object... values) {
    return new HuskException(Status.INVALID_ARGUMENT, String.format(format, values));
  }

  /** The reason, by which a program decides what to do. */
  public Status status() {
    return status;
  }

  /** The error number of the driver; 0 if no call of the driver failed. */
  public int driverCode() {
    return driverCode;
  }

  /** The index of the failed step in its body; -1 if no step failed. */
  public int step() {
    return step;
  }
}
