import java.util.List;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.errors.InvalidRegularExpression;

/** What clients from 4.0 on can do. */
public class Newer extends Groups {
  Newer(String servers, short replicas) {
    super(servers, replicas);
  }

  @Override
  void register(Check c) {
    c.add("newer pattern of the coordinator", this::coordinatorPattern);
    c.add("newer bad pattern", this::badPattern);
  }

  void coordinatorPattern() throws Exception {
    create("regex-a", 1);
    create("xregex-a", 1);
    Member m = new Member(new SubscriptionPattern("regex-.*"), "regex", CONSUMER);
    Check.until(30, "it owns what matches", () -> shared(1, m));
    create("regex-b", 2);
    Check.until(30, "it owns what matches later", () -> shared(3, m));
    m.close();
    Check.same(m.failed, null, "what went wrong");
  }

  void badPattern() throws Exception {
    Member m = new Member(new SubscriptionPattern("regex-["), "bad-regex", CONSUMER);
    Check.until(30, "it is refused", () -> m.failed != null);
    Check.that(m.failed instanceof InvalidRegularExpression, "it is told " + m.failed);
    m.close();
  }
}
