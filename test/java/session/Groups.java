import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;

/** What consumers in groups do, by both protocols. */
public class Groups extends Streams {
  static final String[] CLASSIC = {"group.protocol", "classic", "heartbeat.interval.ms", "300", "session.timeout.ms", "6000"};
  static final String[] CONSUMER = {"group.protocol", "consumer"};

  Groups(String servers, short replicas) {
    super(servers, replicas);
  }

  @Override
  void register(Check c) {
    c.add("group classic, range", () -> rebalances("range", with(CLASSIC, "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor")));
    c.add("group classic, sticky", () -> rebalances("sticky", with(CLASSIC, "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")));
    c.add("group consumer, uniform", () -> rebalances("uniform", with(CONSUMER, "group.remote.assignor", "uniform")));
    c.add("group consumer, range", () -> rebalances("remote-range", with(CONSUMER, "group.remote.assignor", "range")));
    c.add("group classic, static", () -> staticMembers("classic-static", CLASSIC));
    c.add("group consumer, static", () -> staticMembers("consumer-static", CONSUMER));
    c.add("group classic, fenced", this::fencedClassic);
    c.add("group consumer, fenced", this::fencedConsumer);
    c.add("group classic, pattern", () -> pattern("classic", CLASSIC));
    c.add("group consumer, pattern", () -> pattern("consumer", CONSUMER));
    c.add("group moves to the consumer protocol and back", this::migrates);
    c.add("group auto commit", () -> autoCommit("auto-classic", CLASSIC));
    c.add("group auto commit, consumer", () -> autoCommit("auto-consumer", CONSUMER));
  }

  static String[] with(String[] base, String... more) {
    List<String> all = new ArrayList<>(List.of(base));
    all.addAll(List.of(more));
    return all.toArray(String[]::new);
  }

  /** Member is a consumer that polls on a thread of its own until it is told to end. */
  class Member implements AutoCloseable, ConsumerRebalanceListener {
    final AtomicBoolean end = new AtomicBoolean(), vanish = new AtomicBoolean();
    final Set<TopicPartition> owned = ConcurrentHashMap.newKeySet();
    final Map<String, Integer> got = new ConcurrentHashMap<>(); // by place
    volatile Throwable failed;
    final AtomicInteger refused = new AtomicInteger(); // commits
    final KafkaConsumer<String, String> consumer;
    final Thread thread;

    Member(Object topics, String group, String... more) {
      KafkaConsumer<String, String> c = consumer(with(more, "group.id", group));
      consumer = c;
      if (topics instanceof Pattern) {
        c.subscribe((Pattern) topics, this);
      } else if (topics instanceof String) {
        c.subscribe(List.of((String) topics), this);
      } else {
        serverPattern(c, topics, this);
      }
      thread = new Thread(() -> run(c));
      thread.start();
    }

    void run(KafkaConsumer<String, String> c) {
      try {
        while (!end.get()) {
          for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(100))) {
            got.merge(r.topic() + "/" + r.partition() + "/" + r.offset(), 1, Integer::sum);
          }
          commit(c);
        }
      } catch (Throwable e) {
        failed = e;
      } finally {
        c.close(vanish.get() ? Duration.ZERO : Duration.ofSeconds(10));
      }
    }

    /** While a rebalance is under way a commit may be refused: the next one counts. */
    private void commit(KafkaConsumer<String, String> c) {
      try {
        c.commitSync();
      } catch (RetriableException | RebalanceInProgressException | CommitFailedException e) {
        refused.incrementAndGet();
      }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> p) {
      if (failed == null) { // else the group has shut it out
        commit(consumer);
      }
      owned.removeAll(p);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> p) {
      owned.addAll(p);
    }

    @Override
    public void close() throws Exception {
      end.set(true);
      thread.join();
    }
  }

  /** KIP-848's pattern, which the coordinator evaluates; clients before 4.0 have none. */
  static void serverPattern(KafkaConsumer<String, String> c, Object pattern, ConsumerRebalanceListener l) {
    try {
      KafkaConsumer.class.getMethod("subscribe", pattern.getClass(), ConsumerRebalanceListener.class).invoke(c, pattern, l);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  void fill(String topic, int partitions, int each, String prefix) throws Exception {
    try (KafkaProducer<String, String> p = producer()) {
      for (int i = 0; i < partitions * each; i++) {
        p.send(new ProducerRecord<>(topic, i % partitions, "k", prefix + i));
      }
      p.flush();
    }
  }

  /** All partitions are shared out, none is owned twice. */
  static boolean shared(int partitions, Member... members) {
    Set<String> all = new TreeSet<>();
    int sum = 0;
    for (Member m : members) {
      if (m.owned.isEmpty()) {
        return false;
      }
      sum += m.owned.size();
      m.owned.forEach(tp -> all.add(tp.toString()));
    }
    return sum == partitions && all.size() == partitions;
  }

  static int distinct(Member... members) {
    Set<String> all = new TreeSet<>();
    for (Member m : members) {
      all.addAll(m.got.keySet());
    }
    return all.size();
  }

  void rebalances(String name, String... how) throws Exception {
    String topic = "rebalance-" + name;
    create(topic, 6);
    fill(topic, 6, 50, "first");
    Member a = new Member(topic, topic, how);
    Check.until(30, "one member has all", () -> shared(6, a) && distinct(a) == 300);
    Member b = new Member(topic, topic, how);
    Check.until(30, "two members share", () -> shared(6, a, b) && a.owned.size() == 3);
    fill(topic, 6, 50, "second");
    Check.until(30, "two read on", () -> distinct(a, b) == 600);
    b.close();
    Check.same(b.failed, null, "what went wrong for the second member");
    Check.until(30, "the first has all again", () -> shared(6, a));
    fill(topic, 6, 50, "third");
    Check.until(30, "one reads on", () -> distinct(a, b) == 900);
    a.close();
    Check.same(a.failed, null, "what went wrong for the first member");
    if (a.refused.get() + b.refused.get() == 0) {
      Map<String, Integer> times = new TreeMap<>(a.got);
      b.got.forEach((at, n) -> times.merge(at, n, Integer::sum));
      times.forEach((at, n) -> Check.same(n, 1, "times that " + at + " came"));
    }
    // Who comes later goes on behind all of it.
    Member c = new Member(topic, topic, how);
    Check.until(30, "a later member has all", () -> shared(6, c));
    fill(topic, 6, 1, "fourth");
    Check.until(30, "it reads what is new", () -> distinct(c) == 6);
    c.close();
    Check.same(distinct(c), 6, "records that a later member reads");
  }

  void staticMembers(String topic, String... how) throws Exception {
    create(topic, 4);
    Member a = new Member(topic, topic, with(how, "group.instance.id", "a"));
    Member b = new Member(topic, topic, with(how, "group.instance.id", "b"));
    Check.until(30, "two members share", () -> shared(4, a, b));
    Set<TopicPartition> before = Set.copyOf(b.owned), others = Set.copyOf(a.owned);
    b.close();
    Check.same(b.failed, null, "what went wrong");
    Member again = new Member(topic, topic, with(how, "group.instance.id", "b"));
    Check.until(30, "the same instance has the same partitions", () -> again.owned.equals(before));
    Check.same(a.owned, others, "partitions of the other");
    again.close();
    a.close();
    Check.same(a.failed, null, "what went wrong for the first");
    Check.same(again.failed, null, "what went wrong for the one who came again");
  }

  void fencedClassic() throws Exception {
    create("fenced-classic", 1);
    String[] how = with(CLASSIC, "group.instance.id", "one");
    Member a = new Member("fenced-classic", "fenced-classic", how);
    Check.until(30, "it owns", () -> shared(1, a));
    Member b = new Member("fenced-classic", "fenced-classic", how);
    Check.until(30, "the newer one owns", () -> shared(1, b));
    Check.until(30, "the older one ends", () -> a.failed != null);
    Check.that(a.failed instanceof FencedInstanceIdException, "the older one is told " + a.failed);
    b.close();
    a.close();
    Check.same(b.failed, null, "what went wrong for the newer");
  }

  void fencedConsumer() throws Exception {
    create("fenced-consumer", 1);
    String[] how = with(CONSUMER, "group.instance.id", "one");
    Member a = new Member("fenced-consumer", "fenced-consumer", how);
    Check.until(30, "it owns", () -> shared(1, a));
    Member b = new Member("fenced-consumer", "fenced-consumer", how);
    Check.until(30, "the newer one ends", () -> b.failed != null);
    Check.that(b.failed instanceof UnreleasedInstanceIdException, "the newer one is told " + b.failed);
    Check.that(shared(1, a), "the older one owns no more");
    b.close();
    a.close();
    Check.same(a.failed, null, "what went wrong for the older");
  }

  void pattern(String name, String... how) throws Exception {
    create("pattern-" + name + "-a", 1);
    create("other-" + name, 1);
    Member m = new Member(Pattern.compile("pattern-" + name + "-.*"), "pattern-" + name, with(how, "metadata.max.age.ms", "1000"));
    Check.until(30, "it owns what matches", () -> shared(1, m));
    create("pattern-" + name + "-b", 2);
    Check.until(30, "it owns what matches later", () -> shared(3, m));
    m.close();
    Check.same(m.failed, null, "what went wrong");
  }

  /** KIP-848's way from one protocol to the other with members of both. */
  void migrates() throws Exception {
    String topic = "migrates";
    create(topic, 4);
    fill(topic, 4, 10, "first");
    Member a = new Member(topic, topic, CLASSIC);
    Check.until(30, "a classic member has all", () -> shared(4, a) && distinct(a) == 40);
    Member b = new Member(topic, topic, CONSUMER);
    Check.until(45, "a member of each protocol share", () -> shared(4, a, b));
    a.close();
    Check.until(30, "the newer one has all", () -> shared(4, b));
    Member c = new Member(topic, topic, CLASSIC);
    Check.until(45, "a classic member comes again", () -> shared(4, b, c));
    b.close();
    Check.until(30, "it has all", () -> shared(4, c));
    fill(topic, 4, 10, "second");
    Check.until(30, "it reads", () -> distinct(a, b, c) == 80);
    c.close();
    for (Member m : List.of(a, b, c)) {
      Check.same(m.failed, null, "what went wrong");
    }
  }

  void autoCommit(String topic, String... how) throws Exception {
    create(topic, 1);
    fill(topic, 1, 20, "first");
    try (KafkaConsumer<String, String> c = consumer(with(how, "group.id", topic, "enable.auto.commit", "true", "auto.commit.interval.ms", "100"))) {
      c.subscribe(List.of(topic));
      read(c, 20);
    }
    fill(topic, 1, 5, "second");
    try (KafkaConsumer<String, String> c = consumer(with(how, "group.id", topic))) {
      c.subscribe(List.of(topic));
      Check.same(read(c, 5).get(0).offset(), 20L, "where it goes on");
      // A commit of an older place, and back to it.
      TopicPartition tp = new TopicPartition(topic, 0);
      c.commitSync(Map.of(tp, new org.apache.kafka.clients.consumer.OffsetAndMetadata(3)));
      Check.same(c.committed(Set.of(tp)).get(tp).offset(), 3L, "committed by hand");
    }
  }
}
