/**
 * A user's session by Kafka's own client. Arguments: bootstrap servers, replicas of each
 * topic, the beginning of the scenarios' names to run (or an empty one), how many at once.
 */
public class Session {
  public static void main(String[] args) throws Exception {
    Check c = new Check();
    String servers = args[0];
    short replicas = Short.parseShort(args[1]);
    new Streams(servers, replicas).register(c);
    new Groups(servers, replicas).register(c);
    new Admins(servers, replicas).register(c);
    if (has("org.apache.kafka.clients.consumer.SubscriptionPattern")) {
      ((Groups) Class.forName("Newer").getDeclaredConstructor(String.class, short.class).newInstance(servers, replicas)).register(c);
    }
    int failed = c.run(args[2], Integer.parseInt(args[3]));
    System.exit(failed == 0 ? 0 : 1);
  }

  static boolean has(String name) {
    try {
      Class.forName(name);
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }
}
