package test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// register is what both histories are checked against: one value for each key.
// A write whose outcome is unknown has no end: it may take effect at any time
// after it began, or never.
type registerOp struct {
	key   string
	write bool
	value int64 // written
}

const nothingThere = int64(-1)

var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(registerOp).key
			byKey[k] = append(byKey[k], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range byKey {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return nothingThere },
	Step: func(state, input, output any) (bool, any) {
		op := input.(registerOp)
		if op.write {
			return true, op.value
		}
		return output.(int64) == state.(int64), state
	},
	DescribeOperation: func(input, output any) string {
		if op := input.(registerOp); op.write {
			return fmt.Sprintf("%s ← %d", op.key, op.value)
		} else {
			return fmt.Sprintf("%s = %v", op.key, output)
		}
	},
}

// history is what clients did and heard.
type history struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation // guarded by mu
	lost  int                   // writes of unknown outcome; guarded by mu
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// do runs one call and notes it. Reads that fail say nothing.
func (h *history) do(client int, op registerOp, call func() (int64, error)) error {
	start := h.now()
	out, err := call()
	end := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if !op.write {
			return err
		}
		end = math.MaxInt64
		h.lost++
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: start, Output: out, Return: end})
	return err
}

// check fails the test unless the history is linearizable; not knowing is a failure.
func (h *history) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	result, info := porcupine.CheckOperationsVerbose(register, h.ops, time.Minute)
	t.Logf("%d calls, %d writes of unknown outcome: %s", len(h.ops), h.lost, result)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("the history is not linearizable: %s", result)
	file := filepath.Join(os.TempDir(), "tube-history-"+filepath.Base(t.Name())+".html")
	if err := porcupine.VisualizePath(register, info, file); err == nil {
		t.Logf("drawn in %s", file)
	}
}

// A checker that finds nothing proves nothing unless it finds what is there.
func TestTheCheckerFindsStaleReads(t *testing.T) {
	w := func(v, from, to int64) porcupine.Operation {
		return porcupine.Operation{Input: registerOp{"k", true, v}, Call: from, Return: to, Output: int64(0)}
	}
	r := func(v, from, to int64) porcupine.Operation {
		return porcupine.Operation{Input: registerOp{"k", false, 0}, Call: from, Return: to, Output: v}
	}
	for _, c := range []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"in order", []porcupine.Operation{w(1, 0, 1), r(1, 2, 3), w(2, 4, 5), r(2, 6, 7)}, true},
		{"stale", []porcupine.Operation{w(1, 0, 1), w(2, 2, 3), r(1, 4, 5)}, false},
		{"forgotten", []porcupine.Operation{w(1, 0, 1), r(nothingThere, 2, 3)}, false},
		{"back and forth", []porcupine.Operation{w(1, 0, 1), w(2, 2, 9), r(2, 3, 4), r(1, 5, 6)}, false},
		{"unknown, late", []porcupine.Operation{w(1, 0, 1), w(2, 2, math.MaxInt64), r(1, 3, 4), r(2, 5, 6)}, true},
		{"unknown, undone", []porcupine.Operation{w(1, 0, 1), w(2, 2, math.MaxInt64), r(2, 3, 4), r(1, 5, 6)}, false},
	} {
		if got := porcupine.CheckOperations(register, slices.Clone(c.ops)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// storm runs clients while nodes are killed, then stops them.
func (c *cluster) storm(clients, kills int, client func(ctx context.Context, id int)) {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				client(ctx, i)
			}
		})
	}
	defer wg.Wait()
	defer stop()
	for range kills {
		time.Sleep(800 * time.Millisecond)
		id := c.order[rand.IntN(len(c.order))]
		if rand.IntN(2) == 0 {
			id = c.controller()
		}
		c.node(id).kill()
		time.Sleep(time.Duration(500+rand.IntN(1500)) * time.Millisecond)
		c.start(id)
	}
	time.Sleep(time.Second)
}

// Offsets that several clients commit and fetch while nodes die are those of one
// register: what was committed is read, by whomever, at once and for good.
func TestCommittedOffsetsAreLinearizable(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 4)
	h := &history{began: time.Now()}
	var values atomic.Int64
	kills := 3
	if testing.Short() {
		kills = 2
	}
	callers := make([]*offsetsCaller, 5)
	for i := range callers {
		callers[i] = &offsetsCaller{cl: c.client(kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(time.Second)), ask: i%3 + 1}
	}
	c.storm(len(callers), kills, func(ctx context.Context, i int) {
		x := callers[i]
		group, partition := "g"+strconv.Itoa(rand.IntN(3)), int32(rand.IntN(4))
		op := registerOp{key: fmt.Sprint(group, "/", partition)}
		if rand.IntN(2) == 0 {
			op.write, op.value = true, values.Add(1)
		}
		step, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		id, err := x.coordinator(step, group)
		if err == nil {
			err = h.do(i, op, func() (int64, error) {
				if op.write {
					return 0, x.commit(step, id, group, partition, op.value)
				}
				return x.fetch(step, id, group, partition)
			})
		}
		if err != nil {
			x.ask = x.ask%3 + 1
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond)
	})
	h.check(t)
}

// offsetsCaller makes single requests that are not repeated: a commit that is sent
// twice could take effect twice.
type offsetsCaller struct {
	cl  *kgo.Client
	ask int
}

func (x *offsetsCaller) coordinator(ctx context.Context, group string) (int, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
	r, err := x.cl.Broker(x.ask).Request(ctx, req)
	if err != nil {
		return -1, err
	}
	f := r.(*kmsg.FindCoordinatorResponse)
	if len(f.Coordinators) != 1 {
		return -1, errors.New("no coordinator in the answer")
	}
	return int(f.Coordinators[0].NodeID), kerr.ErrorForCode(f.Coordinators[0].ErrorCode)
}

func (x *offsetsCaller) commit(ctx context.Context, id int, group string, partition int32, value int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = partition, value
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	r, err := x.cl.Broker(id).Request(ctx, versioned{req, 8})
	if err != nil {
		return err
	}
	topics := r.(*kmsg.OffsetCommitResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return errors.New("an answer without a partition")
	}
	return kerr.ErrorForCode(topics[0].Partitions[0].ErrorCode)
}

func (x *offsetsCaller) fetch(ctx context.Context, id int, group string, partition int32) (int64, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{partition}
	req.Topics = append(req.Topics, rt)
	r, err := x.cl.Broker(id).Request(ctx, versioned{req, 7})
	if err != nil {
		return -1, err
	}
	f := r.(*kmsg.OffsetFetchResponse)
	if err := kerr.ErrorForCode(f.ErrorCode); err != nil {
		return -1, err
	}
	if len(f.Topics) != 1 || len(f.Topics[0].Partitions) != 1 {
		return -1, errors.New("an answer without a partition")
	}
	p := f.Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

// A setting that several clients change and describe by way of any node while nodes
// die is one register.
func TestTopicSettingsAreLinearizable(t *testing.T) {
	c := newCluster(t, 3)
	const topics = 4
	for i := range topics {
		c.createTopic("t"+strconv.Itoa(i), 1)
	}
	h := &history{began: time.Now()}
	var values atomic.Int64
	kills := 3
	if testing.Short() {
		kills = 2
	}
	clients := make([]*kgo.Client, 5)
	for i := range clients {
		clients[i] = c.client(kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(time.Second))
	}
	c.storm(len(clients), kills, func(ctx context.Context, i int) {
		op := registerOp{key: "t" + strconv.Itoa(rand.IntN(topics))}
		if rand.IntN(3) == 0 {
			op.write, op.value = true, 1_000_000+values.Add(1)
		}
		step, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		id := rand.IntN(3) + 1
		err := h.do(i, op, func() (int64, error) {
			if op.write {
				return 0, setRetention(step, clients[i], id, op.key, op.value)
			}
			return retention(step, clients[i], id, op.key)
		})
		if err != nil {
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond)
	})
	h.check(t)
}

func setRetention(ctx context.Context, cl *kgo.Client, id int, topic string, value int64) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	text := strconv.FormatInt(value, 10)
	rc.Name, rc.Value = "retention.ms", &text
	rr.Configs = append(rr.Configs, rc)
	req.Resources = append(req.Resources, rr)
	r, err := cl.Broker(id).Request(ctx, req)
	if err != nil {
		return err
	}
	resources := r.(*kmsg.IncrementalAlterConfigsResponse).Resources
	if len(resources) != 1 {
		return errors.New("an answer without a resource")
	}
	return kerr.ErrorForCode(resources[0].ErrorCode)
}

func retention(ctx context.Context, cl *kgo.Client, id int, topic string) (int64, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{"retention.ms"}
	req.Resources = append(req.Resources, rr)
	r, err := cl.Broker(id).Request(ctx, req)
	if err != nil {
		return -1, err
	}
	resources := r.(*kmsg.DescribeConfigsResponse).Resources
	if len(resources) != 1 {
		return -1, errors.New("an answer without a resource")
	}
	if err := kerr.ErrorForCode(resources[0].ErrorCode); err != nil {
		return -1, err
	}
	for _, kv := range resources[0].Configs {
		if kv.Name == "retention.ms" && kv.Value != nil {
			if kv.Source != kmsg.ConfigSourceDynamicTopicConfig {
				return nothingThere, nil
			}
			return strconv.ParseInt(*kv.Value, 10, 64)
		}
	}
	return -1, errors.New("retention.ms is not in the answer")
}
