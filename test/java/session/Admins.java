import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/** What the admin client does. */
public class Admins extends Groups {
  Admins(String servers, short replicas) {
    super(servers, replicas);
  }

  @Override
  void register(Check c) {
    c.add("admin topics", this::topics);
    c.add("admin configs", this::configs);
    c.add("admin cluster", this::cluster);
    c.add("admin records", this::records);
    c.add("admin groups", this::groups);
    c.add("admin group of the consumer protocol", this::consumerGroup);
    c.add("admin replicas", this::replicas);
    c.add("admin what is not there", this::missing);
    c.add("admin transactions are refused", this::transactions);
  }

  void topics() throws Exception {
    try (Admin a = admin()) {
      NewTopic one = new NewTopic("admin-a", 3, replicas);
      a.createTopics(List.of(one), new CreateTopicsOptions().validateOnly(true)).all().get();
      Check.that(!a.listTopics().names().get().contains("admin-a"), "validateOnly creates");
      var made = a.createTopics(List.of(one.configs(Map.of("retention.ms", "3600000"))));
      made.all().get();
      Check.same(made.numPartitions("admin-a").get(), 3, "partitions told at creation");
      Check.same(made.replicationFactor("admin-a").get(), (int) replicas, "replicas told at creation");
      Check.same(made.config("admin-a").get().get("retention.ms").value(), "3600000", "retention told at creation");
      var id = made.topicId("admin-a").get();
      Check.same(a.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name(), "admin-a", "name by id");
      Check.fails(TopicExistsException.class, () -> a.createTopics(List.of(one)).all().get());
      Check.fails(InvalidPartitionsException.class, () -> a.createTopics(List.of(new NewTopic("admin-x", 0, (short) 1))).all().get());
      Check.fails(InvalidReplicationFactorException.class, () -> a.createTopics(List.of(new NewTopic("admin-x", 1, (short) 30))).all().get());
      Check.fails(InvalidTopicException.class, () -> a.createTopics(List.of(new NewTopic("a/b", 1, (short) 1))).all().get());
      Check.fails(InvalidConfigurationException.class, () -> a.createTopics(List.of(new NewTopic("admin-x", 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all().get());
      a.createTopics(List.of(new NewTopic("admin-default", Optional.empty(), Optional.empty()))).all().get();
      a.createPartitions(Map.of("admin-a", NewPartitions.increaseTo(5))).all().get();
      Check.fails(InvalidPartitionsException.class, () -> a.createPartitions(Map.of("admin-a", NewPartitions.increaseTo(5))).all().get());
      Check.until(20, "five partitions with leaders", () -> {
        var d = a.describeTopics(List.of("admin-a")).allTopicNames().get().get("admin-a");
        return d.partitions().size() == 5 && d.partitions().stream().allMatch(p -> p.leader() != null && p.isr().size() == replicas);
      });
      Check.fails(UnknownTopicOrPartitionException.class, () -> a.describeTopics(List.of("not-there")).allTopicNames().get());
      Check.that(a.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream().anyMatch(l -> l.topicId().equals(id)), "the topic is listed by its id");
      a.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
      a.deleteTopics(List.of("admin-default")).all().get();
      Check.until(20, "it is gone", () -> !a.listTopics().names().get().contains("admin-a"));
      Check.fails(UnknownTopicOrPartitionException.class, () -> a.deleteTopics(List.of("admin-a")).all().get());
    }
  }

  static AlterConfigOp op(String name, String value, AlterConfigOp.OpType type) {
    return new AlterConfigOp(new ConfigEntry(name, value), type);
  }

  void configs() throws Exception {
    create("admin-configs", 1);
    ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "admin-configs");
    try (Admin a = admin()) {
      a.incrementalAlterConfigs(Map.of(topic, List.of(op("retention.ms", "1000000", AlterConfigOp.OpType.SET), op("segment.bytes", "2097152", AlterConfigOp.OpType.SET)))).all().get();
      var got = a.describeConfigs(List.of(topic), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get().get(topic);
      Check.same(got.get("retention.ms").value(), "1000000", "retention");
      Check.same(got.get("retention.ms").source(), ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "where it is from");
      Check.same(got.get("cleanup.policy").value(), "delete", "policy");
      Check.same(got.get("cleanup.policy").source(), ConfigEntry.ConfigSource.DEFAULT_CONFIG, "where the policy is from");
      Check.that(got.get("retention.ms").documentation() != null, "documentation");
      a.incrementalAlterConfigs(Map.of(topic, List.of(op("retention.ms", null, AlterConfigOp.OpType.DELETE)))).all().get();
      Check.same(a.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value(), "604800000", "retention taken back");
      Check.fails(InvalidConfigurationException.class, () -> a.incrementalAlterConfigs(Map.of(topic, List.of(op("no.such", "1", AlterConfigOp.OpType.SET)))).all().get());
      // Tools that read a list add to it and take from it.
      a.incrementalAlterConfigs(Map.of(topic, List.of(op("cleanup.policy", "delete", AlterConfigOp.OpType.APPEND)))).all().get();
      Set<String> brokers = new HashSet<>();
      a.describeCluster().nodes().get().forEach(n -> brokers.add(n.idString()));
      for (String id : brokers) {
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, id);
        var of = a.describeConfigs(List.of(broker)).all().get().get(broker);
        Check.that(of.get("num.partitions") != null && of.get("default.replication.factor") != null, "broker settings that tools read");
      }
      ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
      a.describeConfigs(List.of(all)).all().get();
    }
  }

  void cluster() throws Exception {
    try (Admin a = admin()) {
      var c = a.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
      Check.same(c.nodes().get().size(), (int) replicas, "nodes");
      Check.that(!c.clusterId().get().isEmpty(), "cluster id");
      Check.that(c.controller().get() != null, "controller");
      Check.that(a.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("group.version"), "group.version is a feature");
      create("admin-dirs", 2);
      Set<Integer> ids = new HashSet<>();
      c.nodes().get().forEach(n -> ids.add(n.id()));
      for (var dirs : a.describeLogDirs(ids).allDescriptions().get().values()) {
        Check.same(dirs.size(), 1, "log dirs");
        for (var d : dirs.values()) {
          Check.same(d.error(), null, "error of a log dir");
          Check.that(d.totalBytes().getAsLong() > 0, "size of a log dir");
        }
      }
      a.metrics();
    }
  }

  void records() throws Exception {
    create("admin-records", 2);
    fill("admin-records", 2, 50, "v");
    TopicPartition zero = new TopicPartition("admin-records", 0), one = new TopicPartition("admin-records", 1);
    try (Admin a = admin()) {
      Check.same(a.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(20))).lowWatermarks().get(zero).get().lowWatermark(), 20L, "low watermark");
      Check.same(a.deleteRecords(Map.of(one, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(one).get().lowWatermark(), 50L, "low watermark of all");
      Check.same(offset(a, zero, OffsetSpec.earliest()), 20L, "earliest");
      Check.same(offset(a, one, OffsetSpec.earliest()), 50L, "earliest of an emptied partition");
      Check.same(offset(a, zero, OffsetSpec.latest()), 50L, "latest");
      Check.that(offset(a, zero, OffsetSpec.maxTimestamp()) >= 20, "offset of the newest time");
      Check.that(offset(a, zero, OffsetSpec.forTimestamp(0)) == 20, "offset at a time");
      Check.fails(KafkaException.class, () -> a.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(5000))).all().get());
      Check.same(a.describeProducers(List.of(zero)).all().get().get(zero).activeProducers().size(), 1, "producers");
    }
    try (KafkaConsumer<String, String> c = consumer()) {
      c.assign(List.of(zero));
      c.seek(zero, 0); // deleted: the client goes on at the earliest
      Check.same(read(c, 30).get(0).offset(), 20L, "the first record left");
    }
  }

  static long offset(Admin a, TopicPartition tp, OffsetSpec s) throws Exception {
    return a.listOffsets(Map.of(tp, s)).partitionResult(tp).get(20, TimeUnit.SECONDS).offset();
  }

  ConsumerGroupDescription describe(Admin a, String group) throws Exception {
    return a.describeConsumerGroups(List.of(group)).all().get().get(group);
  }

  void groups() throws Exception {
    String topic = "admin-group";
    create(topic, 2);
    fill(topic, 2, 10, "v");
    TopicPartition tp = new TopicPartition(topic, 0);
    try (Admin a = admin()) {
      Member m = new Member(topic, topic, with(CLASSIC, "group.instance.id", "m1", "client.id", "admin-client"));
      Check.until(30, "it reads", () -> distinct(m) == 20);
      Check.until(20, "the group is stable", () -> describe(a, topic).state().toString().equals("Stable"));
      ConsumerGroupDescription d = describe(a, topic);
      var member = d.members().iterator().next();
      Check.same(member.clientId(), "admin-client", "client id");
      Check.same(member.groupInstanceId(), Optional.of("m1"), "instance");
      Check.same(member.assignment().topicPartitions().size(), 2, "partitions of the member");
      Check.that(d.coordinator() != null && !d.partitionAssignor().isEmpty(), "coordinator and assignor");
      Check.that(a.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(topic)), "the group is listed");
      Check.fails(GroupNotEmptyException.class, () -> a.deleteConsumerGroups(List.of(topic)).all().get());
      Check.fails(KafkaException.class, () -> a.alterConsumerGroupOffsets(topic, Map.of(tp, new OffsetAndMetadata(1))).all().get());
      m.vanish.set(true); // a static member that closes stays until its session ends
      m.close();
      a.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("m1")))).all().get();
      Check.until(20, "the group is empty", () -> describe(a, topic).members().isEmpty());
      offsetsOf(a, topic, tp);
    }
  }

  void offsetsOf(Admin a, String group, TopicPartition tp) throws Exception {
    Check.same(a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(tp).offset(), 10L, "committed");
    a.alterConsumerGroupOffsets(group, Map.of(tp, new OffsetAndMetadata(4, "by hand"))).all().get();
    Check.same(a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(tp).metadata(), "by hand", "metadata");
    a.deleteConsumerGroupOffsets(group, Set.of(tp)).all().get();
    Check.that(!a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().containsKey(tp), "the offset is still there");
    a.deleteConsumerGroups(List.of(group)).all().get();
    Check.fails(GroupIdNotFoundException.class, () -> a.deleteConsumerGroups(List.of(group)).all().get());
  }

  void consumerGroup() throws Exception {
    String topic = "admin-consumer-group";
    create(topic, 2);
    fill(topic, 2, 10, "v");
    TopicPartition tp = new TopicPartition(topic, 0);
    try (Admin a = admin()) {
      Member m = new Member(topic, topic, CONSUMER);
      Check.until(30, "it reads", () -> distinct(m) == 20);
      ConsumerGroupDescription d = describe(a, topic);
      Check.same(d.members().size(), 1, "members");
      var member = d.members().iterator().next();
      Check.same(member.assignment().topicPartitions().size(), 2, "partitions of the member");
      Check.that(member.targetAssignment().isPresent(), "its target is told");
      Check.same(d.partitionAssignor(), "uniform", "assignor");
      m.close();
      Check.until(20, "the group is empty", () -> describe(a, topic).members().isEmpty());
      offsetsOf(a, topic, tp);
    }
  }

  void replicas() throws Exception {
    create("admin-replicas", 2);
    TopicPartition tp = new TopicPartition("admin-replicas", 0);
    try (Admin a = admin()) {
      Check.that(a.listPartitionReassignments().reassignments().get() != null, "reassignments");
      var d = a.describeTopics(List.of("admin-replicas")).allTopicNames().get().get("admin-replicas").partitions().get(0);
      List<Integer> now = d.replicas().stream().map(n -> n.id()).toList();
      try {
        a.electLeaders(ElectionType.PREFERRED, Set.of(tp)).all().get();
      } catch (java.util.concurrent.ExecutionException e) {
        Check.that(e.getCause() instanceof ElectionNotNeededException, "electLeaders: " + e.getCause());
      }
      List<Integer> turned = new java.util.ArrayList<>(now);
      java.util.Collections.reverse(turned);
      a.alterPartitionReassignments(Map.of(tp, Optional.of(new NewPartitionReassignment(turned)))).all().get();
      Check.until(30, "the reassignment is done", () -> a.listPartitionReassignments(Set.of(tp)).reassignments().get().isEmpty());
      var after = a.describeTopics(List.of("admin-replicas")).allTopicNames().get().get("admin-replicas").partitions().get(0);
      Check.same(after.replicas().stream().map(n -> n.id()).toList(), turned, "replicas");
      Check.fails(KafkaException.class, () -> a.alterPartitionReassignments(Map.of(tp, Optional.empty())).all().get());
    }
  }

  /** What is not there fails at once, in words, and takes nothing along. */
  void missing() throws Exception {
    try (Admin a = admin()) {
      Check.fails(UnsupportedVersionException.class, () -> a.describeAcls(org.apache.kafka.common.acl.AclBindingFilter.ANY).values().get(15, TimeUnit.SECONDS));
      Check.fails(UnsupportedVersionException.class, () -> a.describeUserScramCredentials().all().get(15, TimeUnit.SECONDS));
      Check.fails(UnsupportedVersionException.class, () -> a.describeClientQuotas(org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities().get(15, TimeUnit.SECONDS));
      Check.fails(UnsupportedVersionException.class, () -> a.listTransactions().all().get(15, TimeUnit.SECONDS));
      Check.fails(UnsupportedVersionException.class, () -> a.describeMetadataQuorum().quorumInfo().get(15, TimeUnit.SECONDS));
      a.listTopics().names().get();
    }
  }

  void transactions() throws Exception {
    try (KafkaProducer<String, String> p = producer("transactional.id", "t")) {
      long began = System.nanoTime();
      Throwable e = Check.fails(KafkaException.class, p::initTransactions);
      Check.that(System.nanoTime() - began < Duration.ofSeconds(5).toNanos(), "it took long to say " + e);
    }
  }
}
