package husk;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** An argument of a call of an operator. It is valid during the call. */
public final class Argument {
  /** What an argument is. */
  public enum Kind {
    NONE,
    TENSOR,
    INT,
    FLOAT,
    INTS,
    STRING,
    OTHER
  }

  private static final Kind[] KINDS = {
    Kind.NONE, Kind.TENSOR, Kind.INT, Kind.FLOAT, Kind.INTS, Kind.STRING
  };

  private final Kind kind;
  private final DType dtype;
  private final long integer;
  private final double number;
  private final String text;
  private final long[] sizes;
  private final long[] strides;
  private final ByteBuffer memory;

  // Called by the library.
  Argument(
      int kind,
      int dtype,
      long integer,
      double number,
      byte[] text,
      long[] sizes,
      long[] strides,
      ByteBuffer memory) {
    this.kind = kind < KINDS.length ? KINDS[kind] : Kind.OTHER;
    this.dtype = DType.of(dtype);
    this.integer = integer;
    this.number = number;
    this.text = text == null ? null : new String(text, java.nio.charset.StandardCharsets.UTF_8);
    this.sizes = sizes;
    this.strides = strides;
    this.memory = memory == null ? null : memory.order(ByteOrder.nativeOrder());
  }

  public Kind kind() {
    return kind;
  }

  /** The value of an int or a bool. */
  public long integer() {
    return integer;
  }

  /** The value of a float. */
  public double number() {
    return number;
  }

  /** The value of a text; null for other arguments. */
  public String text() {
    return text;
  }

  /** The type of the elements of a tensor; null for other arguments. */
  public DType dtype() {
    return dtype;
  }

  /** The sizes of a tensor, or the ints of a list of ints. */
  public long[] sizes() {
    return sizes.clone();
  }

  /** The strides of a tensor, in elements. */
  public long[] strides() {
    return strides.clone();
  }

  /**
   * The memory of a contiguous tensor on a CPU. The operator writes to it only if its contract says
   * so.
   *
   * @throws HuskException the argument is no contiguous tensor of this type
   */
  public ByteBuffer memory(DType expected) {
    if (kind != Kind.TENSOR) throw HuskException.invalid("the argument is no tensor");
    if (dtype != expected) {
      throw HuskException.invalid("a tensor of %s is used as %s", dtype, expected);
    }
    if (memory == null) {
      throw HuskException.invalid(
          "a tensor with the strides %s", java.util.Arrays.toString(strides));
    }
    return memory;
  }
}
