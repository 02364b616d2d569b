package husk;

/** A function of the application that programs call as an operator. */
@FunctionalInterface
public interface Operator {
  /**
   * Computes the results. It is called on the thread that runs a session, by several threads if
   * they run several sessions. The arguments are valid during the call.
   *
   * @throws HuskException the run fails with its status and text; other exceptions are
   *     Status.KERNEL
   */
  void run(Argument[] arguments);
}
