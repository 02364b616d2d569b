package husk;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;

// The functions of libhusk_java. Texts are UTF-8, since that of JNI differs from it.
final class Native {
  private Native() {}

  static {
    System.loadLibrary("husk_java");
  }

  static native byte[] version();

  static native long address(ByteBuffer memory);

  static native long createEngine(
      boolean hostImages,
      boolean verifyContent,
      int threads,
      BooleanSupplier cancel,
      BiConsumer<Boolean, String> log);

  static native void releaseEngine(long engine);

  static native void addOperator(long engine, byte[] name, byte[] contract, Operator operator);

  static native byte[] deviceName(long engine);

  static native long open(long engine, byte[] path);

  static native long load(long engine, byte[] bytes);

  static native void releaseProgram(long program);

  // The texts of a program: its functions' names, targets, and the pytree.
  static native int functionCount(long program);

  static native byte[] functionName(long program, int function);

  static native byte[] functionTarget(long program, int function);

  static native byte[] pytree(long program);

  static native int metadataCount(long program);

  static native byte[] metadata(long program, int entry, boolean key);

  // Describes a value or a storage. `info` gets kind, dtype and rank, then the ranges of an input;
  // or dtype, rank and bytes, then the sizes. They return the name.
  static native int valueCount(long program, int function, boolean output);

  static native byte[] value(long program, int function, int index, boolean output, long[] info);

  static native int storageCount(long program, boolean state);

  static native byte[] storage(long program, int index, boolean state, long[] info);

  static native void updateConstant(
      long program, int constant, ByteBuffer bytes, long offset, long size);

  static native long createSession(long program, int mode, long memoryLimit, long loopLimit);

  static native void releaseSession(long session);

  // `values` holds the inputs: kind, address, dtype, rank and sizes of a tensor; kind and bits of
  // another value. `results` gets kind, address, device type, rank, sizes and strides, or kind and
  // bits.
  static native void run(
      long session, int function, long[] values, int used, int inputs, long[] results, int outputs);

  static native void resize(long session, int function, long[] values, int used, int inputs);

  static native void setRange(
      long session, int function, int input, int dim, long min, long max);

  static native void gather(
      long address, long[] sizes, long[] strides, int width, ByteBuffer target);

  static native void getState(long session, int state, ByteBuffer bytes);

  static native void setState(long session, int state, ByteBuffer bytes);

  static native void resetState(long session, int state);

  static native void copyState(long session, int state, long from);

  static byte[] utf8(String text) {
    if (text.indexOf('\0') >= 0) throw HuskException.invalid("a text with a NUL: %s", text);
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  // The library calls what follows. None of them lets an exception through.

  // Returns null, or a byte with the status and the text of the failure.
  private static byte[] run(Operator operator, Argument[] arguments) {
    Status status = Status.KERNEL;
    String text;
    try {
      operator.run(arguments);
      return null;
    } catch (HuskException failure) {
      status = failure.status();
      text = failure.getMessage();
    } catch (Throwable failure) {
      text = "the operator's function threw " + failure;
    }
    byte[] told = String.valueOf(text).getBytes(StandardCharsets.UTF_8);
    byte[] all = new byte[told.length + 1];
    all[0] = (byte) status.code;
    System.arraycopy(told, 0, all, 1, told.length);
    return all;
  }

  private static boolean ask(BooleanSupplier cancel) {
    try {
      return cancel.getAsBoolean();
    } catch (Throwable failure) {
      return true;
    }
  }

  private static void log(BiConsumer<Boolean, String> receiver, boolean warning, byte[] text) {
    try {
      receiver.accept(warning, text(text));
    } catch (Throwable failure) {
      // There is nobody to tell.
    }
  }
}
