package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A toolCall is a command line of Kafka's tools with what it must say. The first word is
// its class in org.apache.kafka.tools, or its full name; words are apart by blanks.
type toolCall struct {
	line  string
	input string   // lines of its standard input
	want  []string // parts of what it says
	fails bool
}

// kafkaTools runs calls one after the other in one process, see test/java/tools.
func kafkaTools(t *testing.T, path, servers string, calls []toolCall) {
	t.Helper()
	var in strings.Builder
	for _, c := range calls {
		words := strings.Fields(c.line)
		if !strings.HasPrefix(words[0], "kafka.") {
			words[0] = "org.apache.kafka.tools." + words[0]
		}
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "SERVERS", servers)
		}
		if c.input != "" {
			escaped := strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(c.input)
			words = append(words, "<<<", escaped)
		}
		in.WriteString(strings.Join(words, "\t") + "\n")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", "-Xmx256m", "-cp", path, "Tools")
	cmd.Stdin, cmd.WaitDelay = strings.NewReader(in.String()), time.Second
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, last(complaints.String(), 4000))
	}
	said := out.String()
	for _, c := range calls {
		text, rest, ok := strings.Cut(said, "exit ")
		if !ok {
			t.Fatalf("%s said nothing; the one before said\n%s", c.line, last(said, 2000))
		}
		code, rest, _ := strings.Cut(rest, "\n")
		said = rest
		if failed := code != "0"; failed != c.fails {
			t.Errorf("%s: exit code %s\n%s", c.line, code, text)
		}
		for _, part := range c.want {
			if !strings.Contains(strings.Join(strings.Fields(text), " "), part) {
				t.Errorf("%s does not say %q:\n%s", c.line, part, text)
			}
		}
	}
}

func toolsPath(t *testing.T) string {
	t.Helper()
	return compiled(t, []string{filepath.Join(fetched(t, "java"), "*")}, []string{"java/tools/Tools.java"})
}

// written is a file of a test, for the tools that read JSON.
func written(t *testing.T, text string) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

const on = " --bootstrap-server SERVERS "

// Kafka's own tools against one node.
func TestCompatTools(t *testing.T) {
	path := toolsPath(t)
	servers, _ := onOne(t)
	calls := append(topicTools(1), groupTools()...)
	calls = append(calls, configTools()...)
	calls = append(calls, shareTools()...)
	calls = append(calls, replicaTools(t, "1")...)
	kafkaTools(t, path, servers, calls)
}

func TestCompatToolsCluster(t *testing.T) {
	atLength(t)
	path := toolsPath(t)
	servers, _ := onThree(t)
	calls := append(topicTools(3), groupTools()...)
	calls = append(calls, configTools()...)
	calls = append(calls, shareTools()...)
	calls = append(calls, replicaTools(t, "3,1,2")...)
	kafkaTools(t, path, servers, append(calls, loadTools()...))
}

func topicTools(replicas int) []toolCall {
	return []toolCall{
		{line: fmt.Sprintf("TopicCommand%s--create --topic t --partitions 1 --replication-factor %d --config retention.ms=3600000", on, replicas), want: []string{"Created topic t."}},
		{line: "TopicCommand" + on + "--create --topic t", fails: true, want: []string{"already exists"}},
		{line: "TopicCommand" + on + "--describe --topic t", want: []string{"PartitionCount: 1", "Configs: retention.ms=3600000", "Elr: LastKnownElr:"}},
		{line: "TopicCommand" + on + "--list", want: []string{"t"}},
		{line: "TopicCommand" + on + "--describe --under-replicated-partitions"},
		{line: "ConsoleProducer" + on + "--sync --topic t --property parse.key=true --property key.separator=: --property parse.headers=true", input: "h:1\tk1:v1\nh:2\tk2:v2\n"},
		{line: "ConsoleProducer" + on + "--sync --topic t --compression-codec zstd", input: "a\nb\nc\n"},
		{line: "consumer.ConsoleConsumer" + on + "--topic t --from-beginning --max-messages 5 --timeout-ms 20000 --group g --property print.key=true --property print.headers=true",
			want: []string{"h:1 k1 v1 h:2 k2 v2 NO_HEADERS null a", "Processed a total of 5 messages"}},
		{line: "GetOffsetShell" + on + "--topic t", want: []string{"t:0:5"}},
		{line: "GetOffsetShell" + on + "--topic t --time -2", want: []string{"t:0:0"}},
		{line: "GetOffsetShell" + on + "--topic t --time -3", want: []string{"t:0:"}},
	}
}

func groupTools() []toolCall {
	const groups = "consumer.group.ConsumerGroupCommand" + on
	const reset = groups + "--group g --topic t --reset-offsets --execute "
	return []toolCall{
		{line: groups + "--list --state", want: []string{"g Empty"}},
		{line: groups + "--describe --group g", want: []string{"g t 0 5 5 0 - - -"}},
		{line: groups + "--describe --group g --members --verbose", want: []string{"no active members"}},
		{line: groups + "--describe --group g --state", want: []string{"Empty 0"}},
		{line: reset + "--to-earliest", want: []string{"g t 0 0"}},
		{line: reset + "--shift-by 3", want: []string{"g t 0 3"}},
		{line: reset + "--to-offset 2", want: []string{"g t 0 2"}},
		{line: reset + "--to-latest", want: []string{"g t 0 5"}},
		{line: reset + "--to-datetime 2020-01-01T00:00:00.000", want: []string{"g t 0 0"}},
		{line: groups + "--group g --topic t --reset-offsets --to-current --dry-run", want: []string{"g t 0 0"}},
		{line: groups + "--group g --topic t:0 --delete-offsets", want: []string{"t 0 Successful"}},
		{line: groups + "--group g --delete", want: []string{"was successful"}},
		{line: "GroupsCommand" + on + "--list"},
	}
}

func configTools() []toolCall {
	const configs = "kafka.admin.ConfigCommand" + on
	return []toolCall{
		{line: configs + "--entity-type topics --entity-name t --alter --add-config retention.ms=7200000,max.message.bytes=2000000", want: []string{"Completed"}},
		{line: configs + "--entity-type topics --entity-name t --describe", want: []string{"retention.ms=7200000", "DEFAULT_CONFIG:log.retention.ms=604800000", "max.message.bytes=2000000"}},
		{line: configs + "--entity-type topics --entity-name t --alter --delete-config retention.ms", want: []string{"Completed"}},
		{line: configs + "--entity-type topics --entity-name t --alter --add-config no.such=1", fails: true, want: []string{"no.such"}},
		{line: configs + "--entity-type brokers --entity-name 1 --describe --all", want: []string{"num.partitions="}},
		{line: configs + "--entity-type brokers --entity-default --alter --add-config log.retention.ms=1000000", want: []string{"Completed"}},
		{line: configs + "--entity-type brokers --entity-default --describe", want: []string{"log.retention.ms=1000000"}},
		{line: configs + "--entity-type brokers --entity-default --alter --delete-config log.retention.ms", want: []string{"Completed"}},
		{line: configs + "--entity-type groups --entity-name sg --alter --add-config share.auto.offset.reset=earliest", want: []string{"Completed"}},
		{line: configs + "--entity-type groups --entity-name sg --describe", want: []string{"share.auto.offset.reset=earliest"}},
		{line: configs + "--entity-type users --describe", fails: true, want: []string{"does not support"}},
	}
}

func shareTools() []toolCall {
	const shares = "consumer.group.ShareGroupCommand" + on
	return []toolCall{
		{line: "consumer.ConsoleShareConsumer" + on + "--topic t --group sg --max-messages 3 --timeout-ms 20000", want: []string{"v1 v2 a", "Processed a total of 3 messages"}},
		{line: shares + "--list", want: []string{"sg"}},
		{line: shares + "--describe --group sg", want: []string{"sg t 0 3"}},
		{line: shares + "--describe --group sg --state", want: []string{"Empty 0"}},
		{line: shares + "--delete --group sg", want: []string{"was successful"}},
	}
}

// replicaTools moves t's partition to the nodes listed, and deletes its first record.
func replicaTools(t *testing.T, nodes string) []toolCall {
	moves := written(t, `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[`+nodes+`]}]}`)
	topics := written(t, `{"version":1,"topics":[{"topic":"t"}]}`)
	records := written(t, `{"version":1,"partitions":[{"topic":"t","partition":0,"offset":1}]}`)
	const reassign = "reassign.ReassignPartitionsCommand" + on
	const elect = "LeaderElectionCommand" + on
	return []toolCall{
		{line: "DeleteRecordsCommand" + on + "--offset-json-file " + records, want: []string{"t-0 low_watermark: 1"}},
		{line: reassign + "--generate --topics-to-move-json-file " + topics + " --broker-list " + nodes, want: []string{"Proposed partition reassignment"}},
		{line: reassign + "--execute --throttle 5000000 --reassignment-json-file " + moves, fails: true, want: []string{"leave --throttle out"}},
		{line: reassign + "--execute --reassignment-json-file " + moves, want: []string{"Successfully started"}},
		{line: elect + "--election-type PREFERRED --all-topic-partitions"},
		{line: reassign + "--list"},
		{line: reassign + "--verify --reassignment-json-file " + moves, want: []string{"Clearing topic-level throttles on topic t"}},
		{line: reassign + "--cancel --reassignment-json-file " + moves},
		{line: "LogDirsCommand" + on + "--describe --topic-list t", want: []string{`"partition":"t-0"`}},
		{line: "FeatureCommand" + on + "describe", want: []string{"group.version", "share.version"}},
		{line: "ClusterTool cluster-id" + on, want: []string{"Cluster ID: "}},
		{line: "ClusterTool list-endpoints" + on, want: []string{"unfenced broker"}},
		{line: "BrokerApiVersionsCommand" + on, want: []string{"Produce(0): 0 to 13"}},
		{line: "TransactionsCommand" + on + "list", fails: true, want: []string{"does not support"}},
		{line: "TransactionsCommand" + on + "describe-producers --topic t --partition 0"},
		{line: "StreamsResetter" + on + "--application-id app --input-topics t --dry-run", want: []string{"Partition: 0 Offset: 1"}},
		{line: "TopicCommand" + on + "--alter --topic t --partitions 3"},
	}
}

func loadTools() []toolCall {
	return []toolCall{
		{line: "ProducerPerformance --topic t --num-records 100000 --record-size 100 --throughput -1 --producer-props bootstrap.servers=SERVERS compression.type=lz4", want: []string{"100000 records sent"}},
		{line: "consumer.group.ConsumerGroupCommand" + on + "--group perf --topic t --reset-offsets --to-earliest --execute", want: []string{"perf t"}},
		{line: "ConsumerPerformance" + on + "--topic t --messages 100000 --timeout 20000 --group perf", want: []string{", 1000"}},
		{line: "VerifiableProducer --bootstrap-server SERVERS --topic t --max-messages 100 --throughput 1000", want: []string{"producer_send_success"}},
		{line: "EndToEndLatency SERVERS t 20 all 100", want: []string{"Avg latency"}},
		{line: "TopicCommand" + on + "--delete --topic t"},
	}
}
