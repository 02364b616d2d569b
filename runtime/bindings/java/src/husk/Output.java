package husk;

/**
 * A value that a run has written. A tensor is memory of the session: `tensor` copies it, before the
 * session runs again.
 */
public final class Output {
  private final Session session;
  private final long run;
  private final Kind kind;
  private final DType dtype;
  private final long bits;
  private final boolean onHost;
  private final long[] sizes;
  private final long[] strides;

  Output(Session session, long run, Kind kind, long bits) {
    this(session, run, kind, null, bits, true, new long[0], new long[0]);
  }

  Output(
      Session session,
      long run,
      Kind kind,
      DType dtype,
      long bits,
      boolean onHost,
      long[] sizes,
      long[] strides) {
    this.session = session;
    this.run = run;
    this.kind = kind;
    this.dtype = dtype;
    this.bits = bits;
    this.onHost = onHost;
    this.sizes = sizes;
    this.strides = strides;
  }

  public Kind kind() {
    return kind;
  }

  /** The type of the elements of a tensor; null for other values. */
  public DType dtype() {
    return dtype;
  }

  /** The sizes of a tensor. */
  public long[] sizes() {
    return sizes.clone();
  }

  /** The value of an int; 1 for true. */
  public long integer() {
    if (kind != Kind.INT && kind != Kind.BOOL) throw HuskException.invalid("the output is no int");
    return bits;
  }

  /** The value of a float. */
  public double number() {
    if (kind != Kind.FLOAT) throw HuskException.invalid("the output is no float");
    return Double.longBitsToDouble(bits);
  }

  /** A copy of a tensor. */
  public Tensor tensor() {
    if (kind != Kind.TENSOR) throw HuskException.invalid("the output is no tensor");
    if (!onHost) throw HuskException.invalid("the tensor is in the memory of another device");
    return session.copy(run, dtype, bits, sizes, strides);
  }

  /** A copy of the elements of an f32 tensor. */
  public float[] floats() {
    return tensor().floats();
  }
}
