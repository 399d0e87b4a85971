package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newTopic(a *app) *cobra.Command {
	return parent("topic", "Create, list, describe, alter, move and delete topics",
		newTopicCreate(a), newTopicList(a), newTopicDescribe(a), newTopicAlter(a), newTopicReassign(a), newTopicDelete(a))
}

// settings reads k=v pairs.
func settings(pairs []string) (map[string]*string, error) {
	out := map[string]*string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usage("for example: --config retention.ms=3600000", "--config %q is not NAME=VALUE", p)
		}
		if out[k] != nil {
			return nil, usage("", "--config %s is given twice", k)
		}
		out[k] = &v
	}
	return out, nil
}

// topic looks one topic up.
func topic(ctx context.Context, adm *kadm.Client, name string) (kadm.TopicDetail, error) {
	all, err := adm.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	d := all[name]
	if d.Err != nil {
		if explain(d.Err).code == exitNotFound {
			return d, notFound("see: tube topic list\nor create it: tube topic create "+name, "there is no topic %q", name)
		}
		return d, d.Err
	}
	return d, nil
}

// completeTopics names the topics to the shell.
func (a *app) completeTopics(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.quiet, a.timeout = true, completionTimeout
	adm, ctx, done, err := a.admin(c.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer done()
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return all.Names(), cobra.ShellCompDirectiveNoFileComp
}
