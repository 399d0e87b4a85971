package cli

import (
	"bufio"
	"context"
	"io"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

const (
	// sendBatch is how many lines are sent at a time, and sendBytes how many bytes.
	sendBatch = 500
	sendBytes = 4 << 20
)

func newQueueSend(a *app) *cobra.Command {
	var (
		key, id string
		headers []string
		when    later
	)
	c := &cobra.Command{
		Use: "send TOPIC [MESSAGE...]", Short: "Send messages, now or for later", Args: atLeast(1), ValidArgsFunction: a.completeTopics,
		Long: "Send each argument as a message, or without any each line of standard input.",
		Example: "  tube queue send orders 'order 17' --key customer-7 --delay 10m\n" +
			"  tube queue send orders 'order 18' --id order-18   # with tube.dedupe.window it is stored once, however often it is sent",
		RunE: func(c *cobra.Command, args []string) error {
			template := &tubev1.OutgoingMessage{Id: id, Headers: map[string]string{}}
			pairs, err := parseHeaders(headers)
			if err != nil {
				return err
			}
			for _, h := range pairs {
				template.Headers[h.Key] = string(h.Value)
			}
			if c.Flags().Changed("key") {
				template.Key = []byte(key)
			}
			delay, at, err := when.read(a.now())
			if err != nil {
				return err
			}
			switch {
			case delay != nil:
				template.When = &tubev1.OutgoingMessage_Delay{Delay: delay}
			case at != nil:
				template.When = &tubev1.OutgoingMessage_DeliverAt{DeliverAt: at}
			}
			if id != "" && len(args) != 2 {
				return usage("", "--id is of one message, which is to be given as an argument")
			}
			return a.sendAll(c.Context(), args[0], template, args[1:])
		},
	}
	c.Flags().StringVarP(&key, "key", "k", "", "key of every message")
	c.Flags().StringVar(&id, "id", "", "id of the message, for a topic that stores each id once")
	c.Flags().StringArrayVarP(&headers, "header", "H", nil, "header of every message as NAME=VALUE; may be repeated")
	when.flags(c, "deliver")
	return a.client(c)
}

// sendAll sends texts, or the lines of standard input if there are none.
func (a *app) sendAll(ctx context.Context, topic string, template *tubev1.OutgoingMessage, texts []string) error {
	all, size := &tubev1.SendResponse{}, 0
	batch := &tubev1.SendRequest{Topic: topic}
	flush := func() error {
		if len(batch.Messages) == 0 {
			return nil
		}
		r, err := ask(ctx, a, a.queues(0).Send, batch)
		if err != nil {
			return err
		}
		all.Results = append(all.Results, r.Results...)
		batch.Messages, size = nil, 0
		return nil
	}
	add := func(value []byte) error {
		batch.Messages = append(batch.Messages, &tubev1.OutgoingMessage{
			Value: value, Key: template.Key, Id: template.Id, Headers: template.Headers, When: template.When,
		})
		if size += len(value); len(batch.Messages) == sendBatch || size >= sendBytes {
			return flush()
		}
		return nil
	}
	err := a.eachMessage(texts, add)
	if err == nil {
		err = flush()
	}
	return a.sentAll(topic, all, err)
}

func (a *app) eachMessage(texts []string, add func([]byte) error) error {
	for _, s := range texts {
		if err := add([]byte(s)); err != nil {
			return err
		}
	}
	if len(texts) > 0 {
		return nil
	}
	in, _, err := a.input("")
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		if err := add(append([]byte(nil), lines.Bytes()...)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// sentAll says what was stored. err ended the sending.
func (a *app) sentAll(topic string, all *tubev1.SendResponse, err error) error {
	failed, repeats := 0, 0
	var first *tubev1.ItemError
	for _, r := range all.Results {
		switch {
		case r.Error != nil:
			if failed++; first == nil {
				first = r.Error
			}
		case r.Duplicate:
			repeats++
		}
	}
	stored := len(all.Results) - failed - repeats
	if err != nil && len(all.Results) > 0 {
		f := explain(err)
		return &failure{f.code, f.text + " (" + plural(int64(stored), "message") + " stored before that)", f.hint}
	}
	if err != nil {
		return err
	}
	if err := a.contract(all, func(w io.Writer) error { return writeSent(w, topic, all, stored, repeats) }); err != nil {
		return err
	}
	return failedSome(failed, len(all.Results), first)
}

func writeSent(w io.Writer, topic string, all *tubev1.SendResponse, stored, repeats int) error {
	if len(all.Results) > 20 {
		t := newTable("TOPIC", "STORED", "REPEATS", "FAILED")
		t.row(topic, stored, repeats, len(all.Results)-stored-repeats)
		return t.write(w)
	}
	t := newTable("TOPIC", "PARTITION", "OFFSET", "ID", "")
	for _, r := range all.Results {
		switch {
		case r.Error != nil:
			t.row(r.Topic, "", "", r.Id, r.Error.Message)
		case r.Duplicate:
			t.row(r.Topic, r.Partition, r.Offset, r.Id, "was there already")
		default:
			t.row(r.Topic, r.Partition, r.Offset, r.Id, "")
		}
	}
	return t.write(w)
}
