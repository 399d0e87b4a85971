"""A user's session by confluent-kafka, which is librdkafka.

Arguments: bootstrap servers, replicas of each topic, the beginning of the names of the
scenarios to run (or an empty one). Says of each scenario, on a line of its own,
"ok NAME" or "FAILED NAME: why".
"""

import sys
import threading
import time
import traceback

import confluent_kafka as ck
from confluent_kafka import admin as ca

SERVERS, REPLICAS, PREFIX = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
CONSUMER = {"group.protocol": "consumer"}


ADMIN = ca.AdminClient({"bootstrap.servers": SERVERS})


def done(futures):
    return {k: f.result(20) for k, f in futures.items()}


def create(topic, partitions, **config):
    done(ADMIN.create_topics([ca.NewTopic(topic, partitions, REPLICAS, config=config)]))


def until(seconds, what, condition):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"within {seconds} s: {what}"
        time.sleep(0.02)


def fails(code, call):
    try:
        call()
    except ck.KafkaException as e:
        assert e.args[0].code() == code, f"{e.args[0]!r}, not {code}"
        return
    raise AssertionError(f"nothing is raised, not {code}")


def produce(topic, records, **conf):
    """Sends (partition, key, value, headers, timestamp) and returns what was delivered."""
    out = []

    def delivered(err, msg):
        assert err is None, err
        out.append(msg)

    p = ck.Producer({"bootstrap.servers": SERVERS, "message.max.bytes": 3_000_000, **conf})
    for partition, key, value, headers, at in records:
        p.produce(topic, value=value, key=key, partition=partition, on_delivery=delivered, timestamp=at, headers=headers)
    assert p.flush(30) == 0, "not everything was delivered"
    return out


def consumer(**conf):
    base = {"bootstrap.servers": SERVERS, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    return ck.Consumer({**base, **conf})


def read(c, records):
    out = []

    def enough():
        m = c.poll(0.2)
        if m is not None:
            assert m.error() is None, m.error()
            out.append(m)
        return len(out) >= records

    until(20, f"{records} records come", enough)
    return out


def compression():
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
        topic = "py-codec-" + codec
        create(topic, 1)
        text = " the same words again and again" * 20
        sent = produce(topic, [(0, f"k{i}", f"{i}{text}", None, 0) for i in range(200)],
                       **{"compression.type": codec, "enable.idempotence": True, "linger.ms": 20})
        assert [m.offset() for m in sent] == list(range(200))
        c = consumer(**{"check.crcs": True})
        c.assign([ck.TopicPartition(topic, 0, 0)])
        got = read(c, 200)
        assert [m.value().decode() for m in got] == [f"{i}{text}" for i in range(200)], codec
        c.close()


def contents():
    create("py-contents", 1)
    headers = [("h", b"\x00\x01\xff"), ("h", None), ("empty", b"")]
    large = bytes(range(256)) * 3600
    produce("py-contents", [(0, b"key", b"value", headers, 1_000_000), (0, b"key", None, None, 0), (0, None, b"", None, 0), (0, b"l", large, None, 0)])
    c = consumer()
    c.assign([ck.TopicPartition("py-contents", 0, 0)])
    got = read(c, 4)
    assert got[0].headers() == headers, got[0].headers()
    assert got[0].timestamp() == (ck.TIMESTAMP_CREATE_TIME, 1_000_000), got[0].timestamp()
    assert got[1].value() is None and got[2].key() is None and got[2].value() == b""
    assert got[3].value() == large
    c.close()
    try:
        produce("py-contents", [(0, b"k", b"x" * 2_000_000, None, 0)])
        raise AssertionError("a record that is too large was taken")
    except AssertionError as e:
        assert "MSG_SIZE_TOO_LARGE" in str(e), e


def offsets():
    create("py-times", 2)
    produce("py-times", [(0, b"k", f"v{i}".encode(), None, 1_000_000 + i * 1000) for i in range(100)])
    tp = ck.TopicPartition("py-times", 0)
    c = consumer()
    assert c.get_watermark_offsets(tp, 10) == (0, 100)
    at = c.offsets_for_times([ck.TopicPartition("py-times", 0, 1_050_500), ck.TopicPartition("py-times", 1, 5)], 10)
    assert at[0].offset == 51, at
    assert at[1].offset == ck.OFFSET_END, at
    c.assign([ck.TopicPartition("py-times", 0, 51)])
    assert read(c, 1)[0].value() == b"v51"
    c.seek(ck.TopicPartition("py-times", 0, 7))
    assert read(c, 1)[0].value() == b"v7"
    c.seek(ck.TopicPartition("py-times", 0, ck.OFFSET_BEGINNING))
    assert read(c, 1)[0].value() == b"v0"
    c.close()
    # The end of a partition is told.
    c = consumer(**{"enable.partition.eof": True})
    c.assign([ck.TopicPartition("py-times", 1, 0)])
    until(10, "the end is told", lambda: (m := c.poll(0.2)) is not None and m.error().code() == ck.KafkaError._PARTITION_EOF)
    c.close()


class Member(threading.Thread):
    """A consumer that polls until it is told to end."""

    def __init__(self, topics, group, conf):
        super().__init__()
        self.owned, self.got, self.failed, self.end, self.leave = set(), [], None, False, True
        self.c = consumer(**{"group.id": group, **conf})
        self.c.subscribe(topics, on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.revoked)
        self.start()

    def assigned(self, c, partitions):
        # Both ways of rebalancing: the callback is given all, or what is new.
        self.owned |= {(p.topic, p.partition) for p in partitions}

    def revoked(self, c, partitions):
        self.owned -= {(p.topic, p.partition) for p in partitions}

    def run(self):
        try:
            while not self.end:
                m = self.c.poll(0.1)
                if m is None:
                    continue
                if m.error():
                    if m.error().code() in (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._MAX_POLL_EXCEEDED):
                        continue
                    raise ck.KafkaException(m.error())
                self.got.append((m.topic(), m.partition(), m.offset()))
                try:
                    self.c.commit(m, asynchronous=False)
                except ck.KafkaException as e:  # while a rebalance is under way
                    if e.args[0].code() not in (ck.KafkaError.REBALANCE_IN_PROGRESS, ck.KafkaError.ILLEGAL_GENERATION, ck.KafkaError.STALE_MEMBER_EPOCH, ck.KafkaError._NO_OFFSET):
                        raise
        except Exception as e:
            self.failed = e
        self.c.close()

    def stop(self):
        self.end = True
        self.join()
        assert self.failed is None, self.failed


def shared(partitions, *members):
    all_ = [p for m in members for p in m.owned]
    return all(m.owned for m in members) and len(all_) == partitions == len(set(all_))


def group(name, conf):
    topic = "py-group-" + name
    create(topic, 4)
    fill = lambda: produce(topic, [(i % 4, b"k", b"v", None, 0) for i in range(40)])
    fill()
    seen = lambda *m: len({g for x in m for g in x.got})
    a = Member([topic], topic, conf)
    until(30, "one has all", lambda: shared(4, a) and seen(a) == 40)
    b = Member([topic], topic, conf)
    until(45, "two share", lambda: shared(4, a, b))
    fill()
    until(30, "two read on", lambda: seen(a, b) == 80)
    b.stop()
    until(30, "one has all again", lambda: shared(4, a))
    fill()
    until(30, "one reads on", lambda: seen(a, b) == 120)
    a.stop()


def static_group(name, conf):
    topic = "py-static-" + name
    create(topic, 4)
    a = Member([topic], topic, {**conf, "group.instance.id": "a"})
    b = Member([topic], topic, {**conf, "group.instance.id": "b"})
    until(45, "two share", lambda: shared(4, a, b))
    before, others = set(b.owned), set(a.owned)
    b.stop()
    b = Member([topic], topic, {**conf, "group.instance.id": "b"})
    until(30, "the same instance has the same", lambda: b.owned == before)
    assert a.owned == others
    b.stop()
    a.stop()


def pattern(name, conf):
    create(f"py-pattern-{name}-a", 1)
    m = Member([f"^py-pattern-{name}-.*"], "py-pattern-" + name, {**conf, "topic.metadata.refresh.interval.ms": 1000})
    until(30, "it owns what matches", lambda: shared(1, m))
    create(f"py-pattern-{name}-b", 2)
    until(30, "it owns what matches later", lambda: shared(3, m))
    m.stop()


def admins():
    a = ADMIN
    create("py-admin", 2)
    assert len(a.list_topics(timeout=10).topics["py-admin"].partitions) == 2
    fails(ck.KafkaError.TOPIC_ALREADY_EXISTS, lambda: create("py-admin", 2))
    d = done(a.describe_topics(ck.TopicCollection(["py-admin"])))["py-admin"]
    assert len(d.partitions) == 2 and len(d.partitions[0].isr) == REPLICAS
    done(a.create_partitions([ca.NewPartitions("py-admin", 3)]))
    r = ca.ConfigResource(ca.ResourceType.TOPIC, "py-admin")
    r.add_incremental_config(ca.ConfigEntry("retention.ms", "1000000", incremental_operation=ca.AlterConfigOpType.SET))
    done(a.incremental_alter_configs([r]))
    got = list(done(a.describe_configs([ca.ConfigResource(ca.ResourceType.TOPIC, "py-admin")])).values())[0]
    assert got["retention.ms"].value == "1000000"
    produce("py-admin", [(0, b"k", b"v", None, 1_000_000 + i) for i in range(10)])
    tp = ck.TopicPartition("py-admin", 0)
    for spec, want in [(ca.OffsetSpec.earliest(), 0), (ca.OffsetSpec.latest(), 10), (ca.OffsetSpec.max_timestamp(), 9), (ca.OffsetSpec.for_timestamp(1_000_005), 5)]:
        assert done(a.list_offsets({tp: spec}))[tp].offset == want, spec
    low = done(a.delete_records([ck.TopicPartition("py-admin", 0, 4)]))
    assert list(low.values())[0].low_watermark == 4
    c = a.describe_cluster().result(10)
    assert len(c.nodes) == REPLICAS and c.controller is not None
    # Groups.
    m = Member(["py-admin"], "py-admin-group", CLASSIC)
    until(30, "it reads", lambda: len(m.got) == 6)
    g = done(a.describe_consumer_groups(["py-admin-group"]))["py-admin-group"]
    assert g.state == ck.ConsumerGroupState.STABLE and len(g.members) == 1, g.state
    assert any(x.group_id == "py-admin-group" for x in a.list_consumer_groups().result(10).valid)
    fails(ck.KafkaError.NON_EMPTY_GROUP, lambda: done(a.delete_consumer_groups(["py-admin-group"])))
    m.stop()
    of = done(a.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions("py-admin-group")]))["py-admin-group"]
    assert [p.offset for p in of.topic_partitions if p.partition == 0] == [10], of.topic_partitions
    to = ck.ConsumerGroupTopicPartitions("py-admin-group", [ck.TopicPartition("py-admin", 0, 5)])
    done(a.alter_consumer_group_offsets([to]))
    done(a.delete_consumer_groups(["py-admin-group"]))
    a.elect_leaders(ck.ElectionType.PREFERRED, [tp]).result(20)
    done(a.delete_topics(["py-admin"]))
    until(10, "it is gone", lambda: "py-admin" not in a.list_topics(timeout=10).topics)


def missing():
    a = ADMIN
    fails(ck.KafkaError._UNSUPPORTED_FEATURE, lambda: a.describe_acls(ca.AclBindingFilter(ca.ResourceType.ANY, None, ca.ResourcePatternType.ANY, None, None, ca.AclOperation.ANY, ca.AclPermissionType.ANY)).result(15))
    fails(ck.KafkaError._UNSUPPORTED_FEATURE, lambda: a.describe_user_scram_credentials().result(15))
    p = ck.Producer({"bootstrap.servers": SERVERS, "transactional.id": "t"})
    began = time.monotonic()
    try:
        p.init_transactions(15)
        raise AssertionError("transactions began")
    except ck.KafkaException:
        assert time.monotonic() - began < 5, "it took long to say that there are no transactions"


SCENARIOS = {
    "compression": compression,
    "contents": contents,
    "offsets": offsets,
    "group classic": lambda: group("classic", CLASSIC),
    "group sticky": lambda: group("sticky", {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}),
    "group consumer": lambda: group("consumer", CONSUMER),
    "static classic": lambda: static_group("classic", CLASSIC),
    "static consumer": lambda: static_group("consumer", CONSUMER),
    "pattern classic": lambda: pattern("classic", CLASSIC),
    "pattern consumer": lambda: pattern("consumer", CONSUMER),
    "admin": admins,
    "missing": missing,
}


def main():
    failed = []

    def say(line):
        sys.stdout.write(line + "\n")  # print would let another thread in before the line's end
        sys.stdout.flush()

    def one(name, f):
        try:
            f()
            say("ok " + name)
        except BaseException as e:
            at = traceback.extract_tb(e.__traceback__)
            line = [x.lineno for x in at if x.filename == __file__]
            failed.append(name)
            say(f"FAILED {name}: {type(e).__name__} {e} at lines {line}")

    threads = [threading.Thread(target=one, args=s) for s in SCENARIOS.items() if s[0].startswith(PREFIX)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sys.exit(1 if failed else 0)


main()
