package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tube-mq/tube/internal/config"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueReceive(a *app) *cobra.Command {
	var (
		n        int32
		wait     string
		ack      bool
		consumer string
	)
	c := &cobra.Command{
		Use: "receive GROUP", Short: "Take messages, each with a lease", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		Long: `Take messages of a queue group. Each comes with a lease: acknowledge it with
"tube queue ack" before the lease ends, else the message comes again. With --ack they
are acknowledged once they were written.`,
		Example: "  tube queue receive billing -n 10 --wait 10s",
		RunE: func(c *cobra.Command, args []string) error {
			d, err := config.ParseDuration(wait)
			if err != nil {
				return usage("", "--wait: %v", err)
			}
			w, err := flagDuration("--wait", wait)
			if err != nil {
				return err
			}
			r, err := askWithin(c.Context(), a, a.timeout+d, a.queues(d).Receive, &tubev1.ReceiveRequest{Group: args[0], MaxMessages: n, Wait: w, ConsumerId: consumer})
			if err != nil {
				return err
			}
			if err := a.received(r.Messages); err != nil {
				return err
			}
			if len(r.Messages) == 0 {
				a.note("Nothing there; %s queue why %s says why.", a.program, args[0])
			}
			if !ack || len(r.Messages) == 0 {
				return nil
			}
			var ids []string
			for _, m := range r.Messages {
				if m.LeaseId != "" {
					ids = append(ids, m.LeaseId)
				}
			}
			return a.acknowledge(c, args[0], ids)
		},
	}
	c.Flags().Int32VarP(&n, "max", "n", 1, "at most so many messages, up to 10000")
	c.Flags().StringVar(&wait, "wait", "0s", "for the first message, up to 60s")
	c.Flags().BoolVar(&ack, "ack", false, "acknowledge them once they were written")
	c.Flags().StringVar(&consumer, "consumer", "", "who receives: a group of mode broadcast needs it; else for the record")
	return a.client(c)
}

// acknowledge is quiet when all goes well: the messages were the answer.
func (a *app) acknowledge(c *cobra.Command, group string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	r, err := ask(c.Context(), a, a.queues(0).Acknowledge, &tubev1.AcknowledgeRequest{Group: group, LeaseIds: ids})
	if err != nil {
		return err
	}
	failed, first := refusedLeases(r.Results)
	return failedSome(failed, len(ids), first)
}

// received writes messages: a JSON object a line, or a block of lines for people.
func (a *app) received(ms []*tubev1.QueueMessage) error {
	if a.json {
		e := json.NewEncoder(a.out)
		e.SetEscapeHTML(false)
		for _, m := range ms {
			if err := e.Encode(receivedJSON(m)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, m := range ms {
		if err := writeReceived(a.out, m); err != nil {
			return err
		}
	}
	return nil
}

func writeReceived(w io.Writer, m *tubev1.QueueMessage) error {
	fmt.Fprintf(w, "lease %s  attempt %d  %s %d/%d", m.LeaseId, m.Attempt, printable(m.Topic), m.Partition, m.Offset)
	if m.Id != "" {
		fmt.Fprintf(w, "  id %s", printable(m.Id))
	}
	if m.Key != nil {
		fmt.Fprintf(w, "  key %s", printable(string(m.Key)))
	}
	if m.LeaseUntil != nil {
		fmt.Fprintf(w, "  until %s", stampOf(m.LeaseUntil))
	}
	var headers []string
	for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
		headers = append(headers, printable(k+"="+m.Headers[k]))
	}
	if headers != nil {
		fmt.Fprintf(w, "  headers %s", strings.Join(headers, ","))
	}
	_, err := fmt.Fprintf(w, "\n%s\n", m.Value)
	return err
}

// queueMessage is a message as JSON, in the manner of "tube consume --format json".
type queueMessage struct {
	message
	Lease      string `json:"lease_id"`
	ID         string `json:"id,omitempty"`
	Attempt    int32  `json:"attempt"`
	LeaseUntil string `json:"lease_until,omitempty"`
}

func receivedJSON(m *tubev1.QueueMessage) queueMessage {
	out := queueMessage{Lease: m.LeaseId, ID: m.Id, Attempt: m.Attempt}
	out.message = message{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: isoMillis(m.Time.AsTime()), TimeMillis: m.Time.AsTime().UnixMilli()}
	out.Key, out.KeyBase64 = textOrBytes(m.Key)
	if m.Value == nil {
		m.Value = []byte{}
	}
	out.Value, out.ValueBase64 = textOrBytes(m.Value)
	if m.LeaseUntil != nil {
		out.LeaseUntil = isoMillis(m.LeaseUntil.AsTime())
	}
	add := func(name string, value []byte) {
		h := messageHeader{Name: name}
		h.Value, h.ValueBase64 = textOrBytes(value)
		out.Headers = append(out.Headers, h)
	}
	whole := map[string]bool{} // names that are in the list
	for _, h := range m.RawHeaders {
		whole[h.Name] = true
		add(h.Name, h.Value)
	}
	for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
		if !whole[k] {
			add(k, []byte(m.Headers[k]))
		}
	}
	return out
}
