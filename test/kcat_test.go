package test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// kcat runs kcat against the node and returns what it writes. It speaks for all
// clients on librdkafka.
func (n *node) kcat(stdin string, args ...string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kcat", append([]string{"-b", n.kafka, "-m", "30", "-q"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("kcat %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

func needKcat(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("kcat is not installed: apt-get install kcat")
	}
}

func TestKcatProducesAndConsumes(t *testing.T) {
	needKcat(t)
	n := newNode(t)
	n.createTopic("t", 1)
	n.kcat("k1:v1\nk2:v2\n", "-P", "-t", "t", "-K:", "-H", "colour=blue", "-H", "size=9")
	n.kcat("k3:\n", "-P", "-t", "t", "-K:", "-Z")
	got := n.kcat("", "-C", "-t", "t", "-o", "beginning", "-e", "-f", `%o %k=%s %S %h\n`)
	want := "0 k1=v1 2 colour=blue,size=9\n1 k2=v2 2 colour=blue,size=9\n2 k3= -1 \n"
	if got != want {
		t.Errorf("kcat reads\n%swant\n%s", got, want)
	}
	if got := n.kcat("", "-C", "-t", "t", "-o", "1", "-c", "1", "-f", `%s\n`); got != "v2\n" {
		t.Errorf("from offset 1 kcat reads %q, want v2", got)
	}
	if got := n.kcat("", "-C", "-t", "t", "-o", "-1", "-e", "-f", `%k\n`); got != "k3\n" {
		t.Errorf("the last one is %q, want k3", got)
	}
}

func TestKcatProducesWithEveryCompressionAndIdempotence(t *testing.T) {
	needKcat(t)
	n := newNode(t)
	n.createTopic("t", 1)
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	text := strings.Repeat("the same words again and again ", 50)
	for _, codec := range codecs {
		n.kcat(codec+" "+text+"\n", "-P", "-t", "t", "-z", codec, "-X", "enable.idempotence=true", "-X", "acks=all")
	}
	got := n.kcat("", "-C", "-t", "t", "-o", "beginning", "-e", "-X", "check.crcs=true")
	for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		if i >= len(codecs) || line != codecs[i]+" "+text {
			t.Fatalf("line %d is %.40q…, want that of %v", i, line, codecs)
		}
	}
	if lines := strings.Count(got, "\n"); lines != len(codecs) {
		t.Errorf("%d lines, want %d", lines, len(codecs))
	}
}

func TestKcatListsTheCluster(t *testing.T) {
	needKcat(t)
	n := newNode(t)
	n.createTopic("t", 3)
	var got struct {
		Brokers []struct {
			ID   int    `json:"id"`
			Name string `json:"name"`
		} `json:"brokers"`
		Topics []struct {
			Topic      string `json:"topic"`
			Partitions []struct {
				Partition int `json:"partition"`
				Leader    int `json:"leader"`
			} `json:"partitions"`
		} `json:"topics"`
	}
	if err := json.Unmarshal([]byte(n.kcat("", "-L", "-J", "-t", "t")), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Brokers) != 1 || got.Brokers[0].Name != n.kafka {
		t.Errorf("brokers are %+v, want the one at %s", got.Brokers, n.kafka)
	}
	if len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 3 {
		t.Fatalf("topics are %+v, want t with 3 partitions", got.Topics)
	}
	for _, p := range got.Topics[0].Partitions {
		if len(got.Brokers) == 1 && p.Leader != got.Brokers[0].ID {
			t.Errorf("partition %d is led by %d, want %d", p.Partition, p.Leader, got.Brokers[0].ID)
		}
	}
}

func TestKcatReadsInAGroupAndGoesOnWhereItStopped(t *testing.T) {
	needKcat(t)
	n := newNode(t)
	n.createTopic("t", 1)
	n.kcat("1\n2\n3\n4\n5\n", "-P", "-t", "t")
	read := func(count string) string {
		return n.kcat("", "-G", "g", "-c", count, "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-f", `%s\n`, "t")
	}
	if got := read("2"); got != "1\n2\n" {
		t.Fatalf("the first reader gets %q, want 1 and 2", got)
	}
	if got := read("3"); got != "3\n4\n5\n" {
		t.Fatalf("the second reader gets %q, want 3 to 5", got)
	}
}

func TestKcatFindsOffsetsByTime(t *testing.T) {
	needKcat(t)
	n := newNode(t)
	n.createTopic("t", 1)
	n.kcat("1\n2\n3\n", "-P", "-t", "t")
	for at, want := range map[string]string{"-1": "offset 3", "-2": "offset 0", "1000": "offset 0"} {
		if got := n.kcat("", "-Q", "-t", "t:0:"+at); !strings.Contains(got, want) {
			t.Errorf("time %s gives %q, want %s", at, got, want)
		}
	}
}

func TestKcatFindsATopicCreatedOnFirstUse(t *testing.T) {
	needKcat(t)
	n := newNode(t)
	n.kcat("hello\n", "-P", "-t", "fresh")
	if got := n.kcat("", "-C", "-t", "fresh", "-o", "beginning", "-e"); got != "hello\n" {
		t.Errorf("kcat reads %q, want hello", got)
	}
}
