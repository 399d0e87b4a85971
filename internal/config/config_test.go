package config

import (
	"context"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write docs/configuration.md anew")

func TestReferenceIsUpToDate(t *testing.T) {
	const path = "../../docs/configuration.md"
	want := Reference()
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Error("docs/configuration.md is not what internal/config says: run make generate")
	}
}

// A field that no row of the table sets would silently stay zero.
func TestEverySettingHasItsOwnField(t *testing.T) {
	fields := reflect.TypeFor[Config]().NumField()
	if fields != len(settings) {
		t.Errorf("Config has %d fields, the table %d rows", fields, len(settings))
	}
	byAddress := map[uintptr]string{}
	c := new(Config)
	for _, s := range settings {
		p := reflect.ValueOf(s.field(c)).Field(0).Pointer()
		if other := byAddress[p]; other != "" {
			t.Errorf("%s and %s set the same field", s.Name, other)
		}
		byAddress[p] = s.Name
	}
}

// What is written must be read back as the same.
func TestDefaultsRoundTrip(t *testing.T) {
	c := Default()
	for _, s := range settings {
		v := s.field(c)
		if v.String() != s.Default {
			t.Errorf("%s: default %q is written back as %q", s.Name, s.Default, v.String())
		}
	}
}

func load(t *testing.T, file string, env []string, flags map[string]string) (*Config, error) {
	t.Helper()
	src := Sources{Flags: flags, Env: env}
	if file != "" {
		src.File = filepath.Join(t.TempDir(), "tube.yaml")
		if err := os.WriteFile(src.File, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(context.Background(), src)
}

func TestFlagsWinOverEnvironmentOverFile(t *testing.T) {
	c, err := load(t, "zone: file\nnode-id: 7\ndefault-partitions: 3\n",
		[]string{"TUBE_ZONE=env", "TUBE_DEFAULT_PARTITIONS=5", "HOME=/"}, map[string]string{"zone": "flag"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Zone != "flag" || c.DefaultPartitions != 5 || c.NodeID != 7 || c.Kafka != "127.0.0.1:9092" {
		t.Errorf("zone %q, default-partitions %d, node-id %d, kafka %q", c.Zone, c.DefaultPartitions, c.NodeID, c.Kafka)
	}
}

func TestFileTakesListsAndUnits(t *testing.T) {
	c, err := load(t, `# a comment
roles: [master, broker]
masters:
  - 1@a.example:9070
  - 2@b.example:9070
offsets-retention: 14d
wal-file-size: 512MiB
auto-create-topics: false
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Masters) != 2 || c.Masters[1].Addr != "b.example:9070" || c.OffsetsRetention != 14*24*time.Hour || c.WALFileBytes != 512<<20 || c.AutoCreateTopics {
		t.Errorf("got %+v", c)
	}
}

func TestMistakesSayWhereAndWhat(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		env        []string
		flags      map[string]string
		want       []string
	}{
		{name: "unknown key", file: "\nnode_id: 1\n", want: []string{`tube.yaml:2:`, `did you mean "node-id"?`}},
		{name: "unknown key, nothing near", file: "qqqqqqqq: 1\n", want: []string{"docs/configuration.md"}},
		{name: "all at once", file: "node-id: x\nzoone: y\n", want: []string{"tube.yaml:1:", "tube.yaml:2:", `"zone"`}},
		{name: "twice", file: "zone: a\nzone: b\n", want: []string{"zone"}},
		{name: "twice, in two documents", file: "zone: a\n---\nzone: b\n", want: []string{"tube.yaml:3:", "zone is there twice"}},
		{name: "nested", file: "kafka:\n  addr: x\n", want: []string{"kafka", "one value"}},
		{name: "list at the top", file: "- zone\n", want: []string{"name: value"}},
		{name: "not YAML", file: "zone: [\n", want: []string{"not YAML"}},
		{name: "environment", env: []string{"TUBE_NODEID=3"}, want: []string{`"TUBE_NODE_ID"`}},
		{name: "flag", flags: map[string]string{"kafka": "nine"}, want: []string{"--kafka", "HOST:PORT"}},
		{name: "port", flags: map[string]string{"kafka": "127.0.0.1:99999"}, want: []string{"65535"}},
		{name: "role", flags: map[string]string{"roles": "master,brokr"}, want: []string{`"brokr"`}},
		{name: "range", flags: map[string]string{"default-partitions": "0"}, want: []string{"1 to 10000"}},
		{name: "duration", flags: map[string]string{"idle-timeout": "10"}, want: []string{"30s"}},
		{name: "size overflow", flags: map[string]string{"disk-reserve": "99999999TiB"}, want: []string{"not a size"}},
		{name: "master twice", flags: map[string]string{"masters": "1@a:1,1@b:1"}, want: []string{"twice"}},
		{name: "not among the masters", flags: map[string]string{"masters": "2@a:1"}, want: []string{"does not list it"}},
		{name: "no master", flags: map[string]string{"roles": "broker"}, want: []string{"--masters"}},
		{name: "timeouts", flags: map[string]string{"group-max-session-timeout": "1s"}, want: []string{"below group-min", "group-consumer-session-timeout"}},
		{name: "heartbeats", flags: map[string]string{"group-consumer-session-timeout": "4s"}, want: []string{"above group-consumer-heartbeat-interval"}},
		{name: "disk", flags: map[string]string{"disk-slow-after": "50ms", "disk-hung-after": "500ms"}, want: []string{"disk-slow-after (50ms) is below 100ms", "disk-hung-after (500ms) is below 1s"}},
		{name: "hung disk", flags: map[string]string{"disk-slow-after": "10s", "disk-hung-after": "10s"}, want: []string{"must be above disk-slow-after"}},
		{name: "memory", flags: map[string]string{"request-memory": "1MiB"}, want: []string{"below max-frame-size"}},
		{name: "wal file", flags: map[string]string{"wal-file-size": "64MiB"}, want: []string{"max-frame-size"}},
		{name: "wildcard", flags: map[string]string{"kafka": "0.0.0.0:9092", "insecure": "true"}, want: []string{"--advertise-kafka HOST:9092"}},
		{name: "no file", env: []string{"TUBE_CONFIG=/nowhere/tube.yaml"}, want: []string{"/nowhere/tube.yaml"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.file, tc.env, tc.flags)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

// Kubernetes gives every pod variables about a Service called tube.
func TestServiceLinksOfKubernetesAreNotSettings(t *testing.T) {
	_, err := load(t, "", []string{
		"TUBE_PORT=tcp://10.0.0.1:9092", "TUBE_SERVICE_HOST=10.0.0.1", "TUBE_SERVICE_PORT=9092", "TUBE_SERVICE_PORT_KAFKA=9092",
		"TUBE_PORT_9092_TCP=tcp://10.0.0.1:9092", "TUBE_PORT_9092_TCP_ADDR=10.0.0.1", "TUBE_KAFKA_PORT_9092_TCP_PROTO=tcp",
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestListeningBeyondLoopbackNeedsInsecure(t *testing.T) {
	hosts := map[string][]netip.Addr{
		"localhost": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		"mixed":     {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")},
		"public":    {netip.MustParseAddr("192.0.2.1")},
		"empty":     {},
	}
	resolve := func(_ context.Context, host string) ([]netip.Addr, error) {
		if a, ok := hosts[host]; ok {
			return a, nil
		}
		return nil, errors.New("no such host")
	}
	for addr, want := range map[string]string{
		"127.0.0.1:1": "", "127.8.8.8:1": "", "[::1]:1": "", "localhost:1": "", "[::ffff:127.0.0.1]:1": "",
		"0.0.0.0:1": "--insecure", ":1": "--insecure", "[::]:1": "--insecure", "192.0.2.1:1": "--insecure",
		"[fe80::1%eth0]:1": "--insecure", "[::ffff:192.0.2.1]:1": "--insecure",
		"public:1": "--insecure", "mixed:1": "--insecure", "nowhere:1": "no such host", "empty:1": "no address",
	} {
		for _, door := range []string{"kafka", "http", "peer"} {
			c := Default()
			c.AdvertiseKafka = "there:1"
			*map[string]*string{"kafka": &c.Kafka, "http": &c.HTTP, "peer": &c.Peer}[door] = addr
			err := errors.Join(c.validate(context.Background(), resolve)...)
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), door)) {
				t.Errorf("%s on %s: %v, want %q", door, addr, err, want)
			}
			c.Insecure = true
			if problems := c.validate(context.Background(), resolve); len(problems) > 0 {
				t.Errorf("%s on %s with --insecure: %v", door, addr, problems)
			}
		}
	}
}

func TestAdvertisedAddresses(t *testing.T) {
	c := Default()
	bound := Addrs{"127.0.0.1:40001", "127.0.0.1:40002", "127.0.0.1:40003"}
	if got := c.Advertised(bound); got != bound {
		t.Errorf("loopback: %v", got)
	}
	c.AdvertiseKafka = "b1.example:9092"
	c.AdvertisePeer = "b1.internal:9070"
	got := c.Advertised(Addrs{"0.0.0.0:9092", "[::]:9080", "0.0.0.0:9070"})
	if want := (Addrs{"b1.example:9092", "b1.example:9080", "b1.internal:9070"}); got != want {
		t.Errorf("wildcard: %v, want %v", got, want)
	}
}

func TestUnits(t *testing.T) {
	for _, s := range []string{"0s", "500ms", "30s", "10m", "1h30m", "12h", "7d", "1h0m5s", "365d"} {
		d, err := ParseDuration(s)
		if err != nil || FormatDuration(d) != s {
			t.Errorf("%s: %v %v, written %s", s, d, err, FormatDuration(d))
		}
	}
	for s, want := range map[string]int64{"0": 0, "17": 17, "17B": 17, "1kB": 1000, "1KB": 1000, "1 KiB": 1024, "2MB": 2e6, "3GiB": 3 << 30, "1TiB": 1 << 40} {
		if n, err := ParseSize(s); err != nil || n != want {
			t.Errorf("%s: %d %v, want %d", s, n, err, want)
		}
	}
	for _, s := range []string{"", "B", "-1", "1.5GiB", "1XB", "9223372036854775808", "8388608TiB"} {
		if n, err := ParseSize(s); err == nil {
			t.Errorf("size %q is read as %d", s, n)
		}
	}
	for _, s := range []string{"", "10", "1.5d", "-1d", "d", "300000000000d"} {
		if d, err := ParseDuration(s); err == nil {
			t.Errorf("duration %q is read as %v", s, d)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add("zone: a\nroles: [master]\n")
	f.Add("a: &x [*x]\n")
	f.Add("? [a]\n: b\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		path := filepath.Join(dir, "f.yaml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = applyFile(Default(), path)
	})
}
