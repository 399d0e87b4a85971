package metrics

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

func scrape(r *Registry) string {
	w := httptest.NewRecorder()
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	r.Handler().ServeHTTP(w, req)
	return w.Body.String()
}

func filled() *Registry {
	r := New("v1", 3)
	k := r.Kafka()
	k.Opened()
	k.Opened()
	k.Closed()
	k.Dropped("idle")
	k.Request("Produce", 3*time.Millisecond)
	k.Error("Produce", "NOT_LEADER")
	k.Received(10)
	k.Sent(20)
	k.Produced(5, 500)
	k.Fetched(70)
	k.Followed(3)
	s := r.Storage()
	s.Wrote(4096, 60*time.Microsecond)
	s.Synced(time.Millisecond)
	s.Checkpointed(time.Second)
	s.Flushed(9)
	s.Corrupted("wal")
	r.Watch(Value{Name: "tube_topics", Help: "Topics.", Read: func() float64 { return 7 }},
		Value{Name: "tube_raft_proposals_total", Help: "Proposals.", Counter: true, Read: func() float64 { return 8 }})
	return r
}

func TestWhatIsCountedIsScraped(t *testing.T) {
	text := scrape(filled())
	for _, want := range []string{
		`tube_build_info{node="3",version="v1"} 1`, "tube_kafka_connections 1", `tube_kafka_connections_closed_total{reason="idle"} 1`,
		`tube_kafka_request_seconds_bucket{api="Produce",le="0.005"} 1`, `tube_kafka_errors_total{api="Produce",error="NOT_LEADER"} 1`,
		"tube_kafka_received_bytes_total 10", "tube_kafka_sent_bytes_total 20", "tube_kafka_produced_records_total 5",
		"tube_kafka_produced_bytes_total 500", "tube_kafka_fetched_bytes_total 70", "tube_wal_written_bytes_total 4096",
		"tube_wal_sync_seconds_count 1", "tube_checkpoint_seconds_sum 1", "tube_segments_written_bytes_total 9",
		`tube_corruptions_total{kind="wal"} 1`, "tube_topics 7", "tube_raft_proposals_total 8", "go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

// Dashboards and alerts are built on the names: tube_ in front, the unit last.
func TestNamesFollowTheRule(t *testing.T) {
	name := regexp.MustCompile(`^(tube_[a-z_]+|go_.*|process_.*)$`)
	for line := range strings.Lines(scrape(filled())) {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] != "TYPE" {
			continue
		}
		ours := strings.HasPrefix(f[2], "tube_")
		if !name.MatchString(f[2]) || ours && (f[3] == "counter") != strings.HasSuffix(f[2], "_total") ||
			ours && f[3] == "histogram" && !strings.HasSuffix(f[2], "_seconds") {
			t.Errorf("%s %s does not follow the rule", f[3], f[2])
		}
	}
}
