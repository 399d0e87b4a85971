package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// consumersGroup is group for one whose partitions the coordinator assigns
// (KIP-848). ok is false if there is no such group.
func consumersGroup(ctx context.Context, adm *kadm.Client, name string) (out kadm.DescribedGroupLag, ok bool, err error) {
	all, err := adm.DescribeConsumerGroups(ctx, name)
	if err != nil {
		return out, false, err
	}
	g := all[name]
	if errors.Is(g.Err, kerr.GroupIDNotFound) {
		return out, false, nil
	} else if g.Err != nil {
		return out, false, g.Err
	}
	out = kadm.DescribedGroupLag{Group: name, Coordinator: g.Coordinator, State: g.State, ProtocolType: "consumer", Protocol: g.AssignorName, Lag: kadm.GroupLag{}}
	for _, m := range g.Members {
		out.Members = append(out.Members, kadm.DescribedGroupMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost})
	}
	committed, err := adm.FetchOffsets(ctx, name)
	if err == nil {
		err = committed.Error()
	}
	if err != nil && explain(err).code != exitNotFound {
		return out, false, err
	}
	for i, m := range g.Members {
		for t, ps := range m.Assignment {
			for p := range ps {
				addLag(out.Lag, kadm.GroupMemberLag{Member: &out.Members[i], Topic: t, Partition: p, Commit: kadm.Offset{Topic: t, Partition: p, At: -1}})
			}
		}
	}
	committed.Each(func(o kadm.OffsetResponse) {
		l, _ := out.Lag.Lookup(o.Topic, o.Partition)
		l.Topic, l.Partition, l.Commit, l.Err = o.Topic, o.Partition, o.Offset, o.Err
		addLag(out.Lag, l)
	})
	return out, true, measure(ctx, adm, out.Lag)
}

func addLag(lag kadm.GroupLag, l kadm.GroupMemberLag) {
	if lag[l.Topic] == nil {
		lag[l.Topic] = map[int32]kadm.GroupMemberLag{}
	}
	lag[l.Topic][l.Partition] = l
}

// measure fills in where the partitions end and what is left to read: all, if
// nothing is committed.
func measure(ctx context.Context, adm *kadm.Client, lag kadm.GroupLag) error {
	var topics []string
	for t := range lag {
		topics = append(topics, t)
	}
	if len(topics) == 0 {
		return nil
	}
	slices.SortFunc(topics, strings.Compare)
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return err
	}
	for t, ps := range lag {
		for p, l := range ps {
			l.Start, _ = starts.Lookup(t, p)
			end, ok := ends.Lookup(t, p)
			switch l.End = end; {
			case l.Err != nil:
			case !ok:
				l.Err = kerr.UnknownTopicOrPartition
			default:
				l.Err = end.Err
			}
			switch {
			case l.Err != nil:
				l.Lag = -1
			case l.Commit.At < 0:
				l.Lag = end.Offset - l.Start.Offset
			default:
				l.Lag = max(0, end.Offset-l.Commit.At)
			}
			ps[p] = l
		}
	}
	return nil
}
