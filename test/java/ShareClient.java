import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A share consumer that says what it is given, one line a record, and what came of its
 * acknowledgements. Arguments: bootstrap servers, group, topic, milliseconds without
 * records after which it ends, mode.
 *
 * <p>Modes: accept, everything; verdicts: the record whose value is "release" is released
 * once, "reject" is rejected, others are accepted; describe: tells the group as the admin
 * client sees it.
 */
public class ShareClient {
  public static void main(String[] args) throws Exception {
    Properties p = new Properties();
    p.put("bootstrap.servers", args[0]);
    p.put("group.id", args[1]);
    if (args[4].equals("describe")) {
      describe(p, args[1], args[2]);
      return;
    }
    p.put("share.acknowledgement.mode", "explicit");
    try (KafkaShareConsumer<byte[], String> c =
        new KafkaShareConsumer<>(p, new ByteArrayDeserializer(), new StringDeserializer())) {
      c.subscribe(List.of(args[2]));
      c.setAcknowledgementCommitCallback((offsets, e) -> { if (e != null) System.out.println("failed " + e); });
      long quiet = Long.parseLong(args[3]);
      boolean any = false;
      for (long last = System.nanoTime(); !any || System.nanoTime() - last < quiet * 1_000_000; ) {
        for (ConsumerRecord<byte[], String> r : c.poll(Duration.ofMillis(200))) {
          any = true;
          last = System.nanoTime();
          short count = r.deliveryCount().get();
          System.out.println("got " + r.partition() + " " + r.offset() + " " + count + " " + r.value());
          c.acknowledge(r, verdict(args[4], r.value(), count));
        }
        c.commitSync(Duration.ofSeconds(10)).forEach((tp, e) -> e.ifPresent(x -> System.out.println("failed " + tp + " " + x)));
      }
    }
    System.out.println("closed");
  }

  static AcknowledgeType verdict(String mode, String value, short count) {
    if (mode.equals("verdicts") && value.equals("release") && count == 1) {
      return AcknowledgeType.RELEASE;
    }
    if (mode.equals("verdicts") && value.equals("reject")) {
      return AcknowledgeType.REJECT;
    }
    return AcknowledgeType.ACCEPT;
  }

  static void describe(Properties p, String group, String topic) throws Exception {
    try (Admin a = Admin.create(p)) {
      var g = a.describeShareGroups(Set.of(group)).all().get().get(group);
      System.out.println("state " + g.groupState() + " members " + g.members().size());
      a.listShareGroupOffsets(Map.of(group, new org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec()))
          .partitionsToOffsetAndMetadata(group)
          .get()
          .forEach((tp, o) -> System.out.println("offset " + tp + " " + (o == null ? -1 : o.offset())));
      for (var l : a.listGroups().all().get()) {
        System.out.println("group " + l.groupId() + " " + l.type().map(Object::toString).orElse(""));
      }
    }
  }
}
