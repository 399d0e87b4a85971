import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Writes and reads while somebody breaks the cluster, until its input ends; then checks
 * that nothing acknowledged is lost, repeated or out of order, and that a group of each
 * protocol has read all of it. Arguments: bootstrap servers, replicas.
 */
public class Ride extends Groups {
  static final int PARTITIONS = 3;

  /**
   * How long a group may read nothing though there is something. The session of a member
   * of the newer protocol is 45 s, so one that has to be replaced takes that and a bit.
   */
  static final int STILL_SECONDS = 90;

  Ride(String servers, short replicas) {
    super(servers, replicas);
  }

  public static void main(String[] args) throws Exception {
    Check c = new Check();
    Ride r = new Ride(args[0], Short.parseShort(args[1]));
    c.add("ride", r::ride);
    System.exit(c.run("", 1) == 0 ? 0 : 1);
  }

  void ride() throws Exception {
    create("ride", PARTITIONS);
    AtomicBoolean end = new AtomicBoolean();
    Thread input = new Thread(() -> {
      try {
        while (System.in.read() >= 0) {}
      } catch (java.io.IOException e) {
        // The end as well.
      }
      end.set(true);
    });
    input.start();
    List<Member> members = new ArrayList<>();
    for (String[] how : List.of(CLASSIC, CONSUMER)) {
      members.add(new Member("ride", "ride-" + how[1], how));
      members.add(new Member("ride", "ride-" + how[1], how));
    }
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    try (KafkaProducer<String, String> p = producer("delivery.timeout.ms", "60000", "max.block.ms", "60000", "compression.type", "lz4")) {
      System.out.println("riding");
      for (int i = 0; !end.get(); i++) {
        sent.add(p.send(new ProducerRecord<>("ride", i % PARTITIONS, "k", "" + i)));
        Thread.sleep(1);
      }
      p.flush();
    }
    for (int i = 0; i < sent.size(); i++) {
      sent.get(i).get(); // none may fail
    }
    for (int g = 0; g < 4; g += 2) {
      Member a = members.get(g), b = members.get(g + 1);
      Check.untilStill(STILL_SECONDS, "group " + g + " has read all " + sent.size(), sent.size(), () -> distinct(a, b), () ->
        "failed: " + a.failed + ", " + b.failed + "; owned: " + a.owned + ", " + b.owned + "; missing: " + missing(sent, a, b));
    }
    for (Member m : members) {
      m.close();
      Check.same(m.failed, null, "what went wrong for a member");
    }
    inOrder(sent);
    System.out.println("rode " + sent.size());
  }

  /** How many records of each partition nobody has read, and the first of them. */
  static String missing(List<Future<RecordMetadata>> sent, Member... members) throws Exception {
    Map<Integer, List<Long>> missing = new TreeMap<>();
    for (Future<RecordMetadata> f : sent) {
      RecordMetadata m = f.get();
      String place = m.topic() + "/" + m.partition() + "/" + m.offset();
      if (Arrays.stream(members).noneMatch(x -> x.got.containsKey(place))) {
        missing.computeIfAbsent(m.partition(), p -> new ArrayList<>()).add(m.offset());
      }
    }
    StringBuilder s = new StringBuilder();
    missing.forEach((p, at) -> s.append(at.size() + " of partition " + p + " from " + at.get(0) + " on; "));
    return s.toString();
  }

  /** Each partition has each of its numbers once and in order, where it was said to be. */
  void inOrder(List<Future<RecordMetadata>> sent) throws Exception {
    Map<Integer, Integer> next = new HashMap<>();
    try (KafkaConsumer<String, String> c = consumer()) {
      List<TopicPartition> all = new ArrayList<>();
      for (int i = 0; i < PARTITIONS; i++) {
        all.add(new TopicPartition("ride", i));
        next.put(i, i);
      }
      c.assign(all);
      for (ConsumerRecord<String, String> r : read(c, sent.size())) {
        int number = Integer.parseInt(r.value());
        Check.same(number, next.get(r.partition()), "the number at " + r.partition() + "/" + r.offset());
        next.put(r.partition(), number + PARTITIONS);
        Check.same(sent.get(number).get().offset(), r.offset(), "the offset that was told of " + number);
      }
      Check.that(c.poll(Duration.ofMillis(500)).isEmpty(), "there is more than was sent");
    }
  }
}
