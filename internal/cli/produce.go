package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// defaultMessageBytes is max.message.bytes of a topic that is not there yet.
	defaultMessageBytes = 1048588
	// maxLineBytes bounds a line of the input, whatever the topic allows.
	maxLineBytes = 64 << 20
)

type produceFlags struct {
	key       string
	headers   []string
	file      string
	partition int32
}

func newProduce(a *app) *cobra.Command {
	var f produceFlags
	c := &cobra.Command{
		Use: "produce TOPIC", Short: "Send lines of standard input or of a file as messages", Args: exactly(1), ValidArgsFunction: a.completeTopics,
		Example: "  echo hello | tube produce orders -k customer-7 -H source=web\n  tube produce orders --file orders.jsonl",
		RunE: func(c *cobra.Command, args []string) error {
			headers, err := parseHeaders(f.headers)
			if err != nil {
				return err
			}
			template := kgo.Record{Topic: args[0], Partition: f.partition, Headers: headers}
			if c.Flags().Changed("key") {
				template.Key = []byte(f.key)
			}
			in, size, err := a.input(f.file)
			if err != nil {
				return err
			}
			defer in.Close()
			return a.produce(c.Context(), template, in, size)
		},
	}
	c.Flags().StringVarP(&f.key, "key", "k", "", "key of every message")
	c.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "header of every message as NAME=VALUE; may be repeated")
	c.Flags().StringVar(&f.file, "file", "", "read this file instead of standard input")
	c.Flags().Int32VarP(&f.partition, "partition", "p", -1, "send to this partition; -1: by the key, or spread")
	return a.client(c)
}

func parseHeaders(pairs []string) ([]kgo.RecordHeader, error) {
	var out []kgo.RecordHeader
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usage("for example: -H source=web", "-H %q is not NAME=VALUE", p)
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return out, nil
}

// input opens where lines come from; the size is 0 if nobody knows.
func (a *app) input(file string) (io.ReadCloser, int64, error) {
	if file == "" {
		if isTerminal(a.in) {
			a.note("Type messages, one a line; Ctrl-D ends.")
		}
		return io.NopCloser(a.in), 0, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, notFound("", "%v", err)
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (a *app) produce(ctx context.Context, template kgo.Record, in io.Reader, size int64) error {
	adm, adminCtx, done, err := a.admin(ctx)
	if err != nil {
		return err
	}
	limit := maxMessageBytes(adminCtx, adm, template.Topic)
	done()
	opts := []kgo.Opt{kgo.AllowAutoTopicCreation(), kgo.ProducerBatchMaxBytes(limit), kgo.RecordDeliveryTimeout(a.timeout)}
	if template.Partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := a.connect(ctx, opts...)
	if err != nil {
		return err
	}
	defer client.Close()

	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	t := &tally{fail: stop, partitions: map[int32]int64{}}
	bar := a.newProgress("message", size)
	readErr := a.sendLines(sending, client, template, in, t, bar)
	// What was read is sent even if the user ended the reading.
	flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	flushErr := client.Flush(flushing)
	bar.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := errors.Join(t.err, readErr, flushErr); err != nil {
		first := t.err
		if first == nil {
			first = err
		}
		return fmt.Errorf("%s stored, then: %w", plural(t.stored, "message"), first)
	}
	return a.doneProducing(template.Topic, t, bar)
}

func (a *app) doneProducing(topic string, t *tally, bar *progress) error {
	if a.json {
		return a.result(produced{topic, t.stored, t.bytes, t.partitions}, nil)
	}
	took := max(a.now().Sub(bar.started), time.Millisecond)
	a.note("Stored %s in %s (%s).", plural(t.stored, "message"), topic, took.Round(time.Millisecond))
	return nil
}

type produced struct {
	Topic      string          `json:"topic"`
	Messages   int64           `json:"messages"`
	Bytes      int64           `json:"bytes"`
	Partitions map[int32]int64 `json:"messages_by_partition"`
}

// tally counts what the node acknowledged. The first error ends the sending.
type tally struct {
	fail       context.CancelCauseFunc
	mu         sync.Mutex
	stored     int64
	bytes      int64
	partitions map[int32]int64
	err        error
}

func (t *tally) promise(line int64) func(*kgo.Record, error) {
	return func(r *kgo.Record, err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case err == nil:
			t.stored++
			t.bytes += int64(len(r.Value))
			t.partitions[r.Partition]++
		case t.err == nil:
			t.err = fmt.Errorf("line %d: %w", line, err)
			t.fail(t.err)
		}
	}
}

func (t *tally) progress() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stored
}

// sendLines sends each line until the input or ctx ends. The client bounds what
// is under way, so a slow node makes it wait.
func (a *app) sendLines(ctx context.Context, client *kgo.Client, template kgo.Record, in io.Reader, t *tally, bar *progress) error {
	lines := make(chan []byte)
	var readErr error
	// A read of the terminal cannot be interrupted: when ctx ends first this
	// goroutine is left to the end of the process.
	go func() {
		defer close(lines)
		readErr = readLines(in, maxLineBytes, func(line []byte) bool {
			select {
			case lines <- line:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	var n, read int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case line, ok := <-lines:
			if !ok {
				return readErr
			}
			n++
			read += int64(len(line)) + 1
			r := template
			r.Value = line
			// What is on its way goes on when ctx ends; Flush has a limit of time.
			client.Produce(context.WithoutCancel(ctx), &r, t.promise(n))
			bar.show(t.progress(), read)
		}
	}
}

// readLines hands every line, without its end, to take until that returns false.
func readLines(in io.Reader, limit int, take func([]byte) bool) error {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 0, min(limit, 64<<10)), limit)
	for n := 1; s.Scan(); n++ {
		if !take(slices.Clone(s.Bytes())) {
			return nil
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %s bytes", count(int64(limit)))
	}
	return s.Err()
}

// maxMessageBytes asks for the topic's limit; a topic that is not there yet, or
// a broker that does not say, has the default.
func maxMessageBytes(ctx context.Context, adm *kadm.Client, topic string) int32 {
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return defaultMessageBytes
	}
	for _, rc := range configs {
		for _, c := range rc.Configs {
			var n int32
			if c.Key == "max.message.bytes" {
				if _, err := fmt.Sscan(c.MaybeValue(), &n); err == nil && n > 1024 {
					return min(n, maxLineBytes)
				}
			}
		}
	}
	return defaultMessageBytes
}
