import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What producers and consumers without a group do. */
public class Streams {
  final String servers;
  final short replicas;

  Streams(String servers, short replicas) {
    this.servers = servers;
    this.replicas = replicas;
  }

  void register(Check c) {
    for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
      c.add("stream compression " + codec, () -> compression(codec));
    }
    c.add("stream keys, headers, tombstones, times", this::contents);
    c.add("stream large records", this::large);
    c.add("stream offsets by time, seek, pause", this::offsets);
    c.add("stream commit with metadata", this::commits);
    c.add("stream topic made by producing", this::autoCreate);
  }

  Properties props(String... more) {
    Properties p = new Properties();
    p.put("bootstrap.servers", servers);
    p.put("default.api.timeout.ms", "20000");
    p.put("request.timeout.ms", "15000");
    for (int i = 0; i < more.length; i += 2) {
      p.put(more[i], more[i + 1]);
    }
    return p;
  }

  KafkaProducer<String, String> producer(String... more) {
    Properties p = props(more);
    p.remove("default.api.timeout.ms");
    p.putIfAbsent("max.block.ms", "20000");
    p.putIfAbsent("delivery.timeout.ms", "30000");
    return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
  }

  KafkaConsumer<String, String> consumer(String... more) {
    Properties p = props(more);
    p.putIfAbsent("auto.offset.reset", "earliest");
    p.putIfAbsent("enable.auto.commit", "false");
    return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
  }

  Admin admin() {
    return Admin.create(props());
  }

  void create(String topic, int partitions, String... settings) throws Exception {
    NewTopic t = new NewTopic(topic, partitions, replicas);
    Map<String, String> configs = new java.util.HashMap<>();
    for (int i = 0; i < settings.length; i += 2) {
      configs.put(settings[i], settings[i + 1]);
    }
    try (Admin a = admin()) {
      a.createTopics(List.of(t.configs(configs))).all().get();
    }
  }

  /** Reads records of one partition from its start until there are as many. */
  static <V> List<ConsumerRecord<String, V>> read(KafkaConsumer<String, V> c, int records) throws Exception {
    List<ConsumerRecord<String, V>> out = new ArrayList<>();
    Check.until(20, records + " records come", () -> {
      c.poll(Duration.ofMillis(200)).forEach(out::add);
      return out.size() >= records;
    });
    return out;
  }

  void compression(String codec) throws Exception {
    String topic = "codec-" + codec;
    create(topic, 1);
    int records = 500;
    String text = " the same words again and again".repeat(20);
    try (KafkaProducer<String, String> p = producer("compression.type", codec, "linger.ms", "20", "acks", "all", "enable.idempotence", "true")) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (int i = 0; i < records; i++) {
        sent.add(p.send(new ProducerRecord<>(topic, 0, "k" + i, i + text)));
      }
      for (int i = 0; i < records; i++) {
        Check.same(sent.get(i).get().offset(), (long) i, "offset of record " + i);
      }
    }
    TopicPartition tp = new TopicPartition(topic, 0);
    try (KafkaConsumer<String, String> c = consumer("check.crcs", "true")) {
      c.assign(List.of(tp));
      List<ConsumerRecord<String, String>> got = read(c, records);
      for (int i = 0; i < records; i++) {
        Check.same(got.get(i).value(), i + text, "record " + i);
        Check.same(got.get(i).key(), "k" + i, "key of record " + i);
      }
      c.seek(tp, 123); // in the middle of a batch
      Check.same(read(c, 1).get(0).offset(), 123L, "the record after seek");
    }
  }

  void contents() throws Exception {
    create("contents", 1);
    TopicPartition tp = new TopicPartition("contents", 0);
    try (KafkaProducer<String, String> p = producer()) {
      ProducerRecord<String, String> r = new ProducerRecord<>("contents", 0, 1_000_000L, "key", "value");
      r.headers().add(new RecordHeader("h", new byte[] {0, 1, (byte) 255})).add(new RecordHeader("h", null)).add("empty", new byte[0]);
      p.send(r).get();
      p.send(new ProducerRecord<>("contents", 0, "key", null)).get();
      p.send(new ProducerRecord<>("contents", 0, null, "")).get();
      Check.same(p.partitionsFor("contents").size(), 1, "partitions");
    }
    try (KafkaConsumer<String, String> c = consumer()) {
      c.assign(List.of(tp));
      List<ConsumerRecord<String, String>> got = read(c, 3);
      Check.same(got.get(0).timestamp(), 1_000_000L, "time");
      Check.same(got.get(0).timestampType().name, "CreateTime", "kind of time");
      var headers = got.get(0).headers().toArray();
      Check.same(headers.length, 3, "headers");
      Check.that(Arrays.equals(headers[0].value(), new byte[] {0, 1, (byte) 255}), "header bytes");
      Check.same(headers[1].value(), null, "header without a value");
      Check.same(headers[2].value().length, 0, "bytes of an empty header");
      Check.same(got.get(1).value(), null, "tombstone");
      Check.same(got.get(2).key(), null, "no key");
      Check.same(got.get(2).value(), "", "empty value");
      Check.that(got.get(0).leaderEpoch().isPresent(), "a leader epoch is told");
    }
    create("appended", 1, "message.timestamp.type", "LogAppendTime");
    long before = System.currentTimeMillis() - 5000;
    try (KafkaProducer<String, String> p = producer()) {
      long told = p.send(new ProducerRecord<>("appended", 0, 5L, "k", "v")).get().timestamp();
      Check.that(told > before, "the producer is told " + told + " as the time of appending");
    }
    try (KafkaConsumer<String, String> c = consumer()) {
      c.assign(List.of(new TopicPartition("appended", 0)));
      ConsumerRecord<String, String> r = read(c, 1).get(0);
      Check.same(r.timestampType().name, "LogAppendTime", "kind of time");
      Check.that(r.timestamp() > before, "time of appending is " + r.timestamp());
    }
  }

  void large() throws Exception {
    create("large", 1);
    byte[] value = new byte[900 << 10];
    new java.util.Random(7).nextBytes(value);
    try (KafkaProducer<String, byte[]> p = new KafkaProducer<>(props("max.request.size", "5000000"), new StringSerializer(), new ByteArraySerializer())) {
      for (int i = 0; i < 6; i++) {
        p.send(new ProducerRecord<>("large", 0, "k", value)).get();
      }
      Check.fails(RecordTooLargeException.class, () -> p.send(new ProducerRecord<>("large", 0, "k", new byte[3 << 20])).get());
      p.send(new ProducerRecord<>("large", 0, "k", "after".getBytes(StandardCharsets.UTF_8))).get();
    }
    // A fetch smaller than the record still brings it.
    try (KafkaConsumer<String, byte[]> c = new KafkaConsumer<>(props("fetch.max.bytes", "10000", "max.partition.fetch.bytes", "10000"), new StringDeserializer(), new ByteArrayDeserializer())) {
      TopicPartition tp = new TopicPartition("large", 0);
      c.assign(List.of(tp));
      c.seekToBeginning(List.of(tp));
      List<ConsumerRecord<String, byte[]>> got = read(c, 7);
      for (int i = 0; i < 6; i++) {
        Check.that(Arrays.equals(got.get(i).value(), value), "record " + i + " is another");
      }
    }
  }

  void offsets() throws Exception {
    create("times", 2);
    TopicPartition tp = new TopicPartition("times", 0), empty = new TopicPartition("times", 1);
    try (KafkaProducer<String, String> p = producer()) {
      for (int i = 0; i < 100; i++) {
        p.send(new ProducerRecord<>("times", 0, 1_000_000L + i * 1000, "k", "v" + i)).get();
      }
    }
    try (KafkaConsumer<String, String> c = consumer()) {
      c.assign(List.of(tp, empty));
      Check.same(c.beginningOffsets(List.of(tp, empty)), Map.of(tp, 0L, empty, 0L), "beginnings");
      Check.same(c.endOffsets(List.of(tp, empty)), Map.of(tp, 100L, empty, 0L), "ends");
      var at = c.offsetsForTimes(Map.of(tp, 1_050_500L, empty, 0L));
      Check.same(at.get(tp).offset(), 51L, "offset at a time");
      Check.same(at.get(tp).timestamp(), 1_051_000L, "time found");
      Check.same(at.get(empty), null, "offset in an empty partition");
      Check.same(c.offsetsForTimes(Map.of(tp, 9_999_999L)).get(tp), null, "offset after all");
      c.seek(tp, 51);
      Check.same(read(c, 1).get(0).value(), "v51", "after seek");
      c.seekToEnd(List.of(tp));
      Check.same(c.position(tp), 100L, "position at the end");
      c.pause(List.of(tp));
      c.seekToBeginning(List.of(tp));
      Check.that(c.poll(Duration.ofMillis(300)).isEmpty(), "a paused partition brings records");
      c.resume(List.of(tp));
      Check.same(read(c, 1).get(0).value(), "v0", "after resume");
      Check.same(c.listTopics().get("times").size(), 2, "partitions listed");
      Check.that(c.currentLag(tp).isPresent(), "lag is known");
      // Beyond the end: auto.offset.reset takes it to the beginning.
      c.seek(tp, 5000);
      Check.same(read(c, 1).get(0).value(), "v0", "after a seek beyond the end");
    }
  }

  void commits() throws Exception {
    create("commits", 1);
    TopicPartition tp = new TopicPartition("commits", 0);
    for (String protocol : List.of("classic", "consumer")) {
      try (KafkaConsumer<String, String> c = consumer("group.id", "commits-" + protocol, "group.protocol", protocol)) {
        c.assign(List.of(tp));
        Check.same(c.committed(java.util.Set.of(tp)).get(tp), null, "before the first commit");
        c.commitSync(Map.of(tp, new OffsetAndMetadata(7, java.util.Optional.of(0), "where I was")));
        OffsetAndMetadata got = c.committed(java.util.Set.of(tp)).get(tp);
        Check.same(got.offset(), 7L, "committed offset");
        Check.same(got.metadata(), "where I was", "metadata of the commit");
      }
    }
  }

  void autoCreate() throws Exception {
    try (KafkaProducer<String, String> p = producer()) {
      p.send(new ProducerRecord<>("made-by-producing", "k", "v")).get();
    }
  }
}
