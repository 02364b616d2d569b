package husk;

// Written by schema/dtypes.py from dtypes.def.

/** The type of the elements of a tensor. */
public enum DType {
  BOOL(Constants.HUSK_BOOL, 1),
  U8(Constants.HUSK_U8, 1),
  I8(Constants.HUSK_I8, 1),
  U16(Constants.HUSK_U16, 2),
  I16(Constants.HUSK_I16, 2),
  U32(Constants.HUSK_U32, 4),
  I32(Constants.HUSK_I32, 4),
  U64(Constants.HUSK_U64, 8),
  I64(Constants.HUSK_I64, 8),
  F16(Constants.HUSK_F16, 2),
  BF16(Constants.HUSK_BF16, 2),
  F32(Constants.HUSK_F32, 4),
  F64(Constants.HUSK_F64, 8),
  C64(Constants.HUSK_C64, 8),
  C128(Constants.HUSK_C128, 16),
  F8E4M3FN(Constants.HUSK_F8E4M3FN, 1),
  F8E5M2(Constants.HUSK_F8E5M2, 1),
  F8E4M3FNUZ(Constants.HUSK_F8E4M3FNUZ, 1),
  F8E5M2FNUZ(Constants.HUSK_F8E5M2FNUZ, 1);

  private static final DType[] BY_CODE = new DType[Constants.HUSK_F8E5M2FNUZ + 1];

  static {
    for (DType dtype : values()) BY_CODE[dtype.code] = dtype;
  }

  final int code;
  private final int size;

  DType(int code, int size) {
    this.code = code;
    this.size = size;
  }

  /** The number of bytes of one element. */
  public int size() {
    return size;
  }

  /** Null for values that are no tensors. */
  static DType of(long code) {
    return code > 0 && code < BY_CODE.length ? BY_CODE[(int) code] : null;
  }

  @Override
  public String toString() {
    return name().toLowerCase(java.util.Locale.ROOT);
  }
}
