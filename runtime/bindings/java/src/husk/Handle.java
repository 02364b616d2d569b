package husk;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongConsumer;

// An object of the library, which is freed when its owner is closed and nothing uses it any more.
final class Handle implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create();

  final long address;
  private final Handle parent;
  private final LongConsumer free;
  private final AtomicInteger users = new AtomicInteger(1);
  private final AtomicBoolean closed = new AtomicBoolean();

  // The collector closes the handle after `owner`.
  Handle(Object owner, long address, Handle parent, LongConsumer free) {
    this.address = address;
    this.parent = parent;
    this.free = free;
    if (parent != null) parent.users.incrementAndGet();
    CLEANER.register(owner, this::close);
  }

  boolean isClosed() {
    return closed.get();
  }

  @Override
  public void close() {
    if (!closed.getAndSet(true)) release();
  }

  private void release() {
    if (users.decrementAndGet() > 0) return;
    free.accept(address);
    if (parent != null) parent.release();
  }
}
