import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Runs named scenarios side by side and says of each, on a line of its own, "ok NAME" or
 * "FAILED NAME: why". A scenario fails by throwing.
 */
public class Check {
  /** Scenario is one thing that a user does, with assertions. */
  public interface Scenario {
    void run() throws Exception;
  }

  /** Asked is a condition that may throw. */
  public interface Asked {
    boolean holds() throws Exception;
  }

  /** Counted is a number that may grow. */
  public interface Counted {
    int count() throws Exception;
  }

  /** Told says how things are. */
  public interface Told {
    String tell() throws Exception;
  }

  private final Map<String, Scenario> scenarios = new LinkedHashMap<>();

  public void add(String name, Scenario s) {
    scenarios.put(name, s);
  }

  /** Runs all whose name begins with the prefix; returns how many failed. */
  public int run(String prefix, int atOnce) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(atOnce);
    List<Future<Boolean>> results = new ArrayList<>();
    scenarios.forEach(
        (name, s) -> {
          if (name.startsWith(prefix)) {
            results.add(pool.submit(() -> one(name, s)));
          }
        });
    int failed = 0;
    for (Future<Boolean> r : results) {
      failed += r.get() ? 0 : 1;
    }
    pool.shutdown();
    return failed;
  }

  private static boolean one(String name, Scenario s) {
    try {
      s.run();
      System.out.println("ok " + name);
      return true;
    } catch (Throwable e) {
      StackTraceElement at = e.getStackTrace().length > 0 ? e.getStackTrace()[0] : null;
      for (StackTraceElement f : e.getStackTrace()) {
        if (f.getFileName() != null && !f.getClassName().contains(".") && !f.getClassName().equals("Check")) {
          at = f;
          break;
        }
      }
      System.out.println("FAILED " + name + ": " + e + (e.getCause() == null ? "" : " because " + e.getCause()) + " at " + at);
      return false;
    }
  }

  public static void that(boolean holds, String otherwise) {
    if (!holds) {
      throw new AssertionError(otherwise);
    }
  }

  public static void same(Object got, Object want, String what) {
    that(Objects.equals(got, want), what + " is " + got + ", not " + want);
  }

  /** Asks until it holds, for seconds at most. */
  public static void until(int seconds, String what, Asked condition) throws Exception {
    long end = System.nanoTime() + seconds * 1_000_000_000L;
    while (!condition.holds()) {
      that(System.nanoTime() < end, "within " + seconds + " s: " + what);
      Thread.sleep(20);
    }
  }

  /**
   * Waits until a number is reached, for as long as it grows: without growing for seconds
   * at most. How long all of it takes is the machine's matter.
   */
  public static void untilStill(int seconds, String what, int want, Counted number, Told state) throws Exception {
    int had = -1;
    for (long end = 0; had != want; Thread.sleep(20)) {
      int has = number.count();
      if (has != had) {
        had = has;
        end = System.nanoTime() + seconds * 1_000_000_000L;
      }
      if (System.nanoTime() >= end) {
        throw new AssertionError(what + ": stands still at " + had + " for " + seconds + " s; " + state.tell());
      }
    }
  }

  /** The call must fail, by an exception of this kind or with it as the cause. */
  public static Throwable fails(Class<? extends Throwable> kind, Scenario call) throws Exception {
    try {
      call.run();
    } catch (Throwable e) {
      Throwable t = e instanceof ExecutionException ? e.getCause() : e;
      for (Throwable c = t; c != null; c = c.getCause()) {
        if (kind.isInstance(c)) {
          return c;
        }
      }
      throw new AssertionError(t + ", not " + kind.getSimpleName(), t);
    }
    throw new AssertionError("nothing is thrown, not " + kind.getSimpleName());
  }
}
